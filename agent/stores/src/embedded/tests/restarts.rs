//! Facts that a restart keeps, and facts that it cannot know.

use super::*;

#[test]
fn a_crash_loses_no_grant() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    assert_eq!(token, CLOCK_US);
    host.crash();
    host.pass(Duration::from_secs(20));
    host.start(BOOT, CLOCK_US);
    assert_eq!(state(&mut host), UpstreamState::Up);
    assert!(matches!(host.claim(2, "x"), ClaimAnswer::Contended { .. }));
    assert_eq!(host.renew(1, "x"), BeatAnswer::Held { token, limit: None });
    // Greater than any before, although the clock stood still.
    assert!(host.token(3, "y") > token);
    // An agent that came back gives everybody a whole ttl.
    host.pass(TTL - Duration::from_millis(1));
    assert!(matches!(host.claim(4, "x"), ClaimAnswer::Contended { .. }));
    host.pass(Duration::from_millis(1));
    assert!(matches!(host.claim(5, "x"), ClaimAnswer::Held { .. }));
}

#[test]
fn without_its_journal_it_grants_nothing_until_every_grant_has_ended() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.crash();
    remove_contents(host.runtime_dir.path());
    host.pass(Duration::from_secs(1));
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Quarantined);
    let ClaimAnswer::Quarantined { free_in } = host.claim(2, "x") else { panic!() };
    assert!(free_in >= TTL && free_in <= TTL * 5 / 4, "{free_in:?}");

    // Another restart, with a journal this time, does not shorten it.
    host.crash();
    host.pass(Duration::from_secs(1));
    host.start(BOOT, 5);
    let ClaimAnswer::Quarantined { free_in: rest } = host.claim(2, "x") else { panic!() };
    assert_eq!(rest, free_in - Duration::from_secs(1));

    let end = host.store().poll_timeout().unwrap();
    assert_eq!(end, host.now + rest);
    host.now = end;
    host.store().handle_timeout(end);
    assert_eq!(state(&mut host), UpstreamState::Up);
    assert!(host.token(2, "x") > token);
}

impl Host {
    /// A start that gets as far as the ledger, and not further.
    fn start_in_vain(&mut self) {
        let start = Start::read(&mut files(self.state_dir.path())).unwrap();
        let runtime_dir = Box::new(files(self.runtime_dir.path()));
        Journal::open(runtime_dir, BOOT, start.generation(BOOT), Ahead::default()).unwrap();
    }
}

#[test]
fn a_start_in_vain_does_not_hide_that_the_journal_is_lost() {
    let mut host = Host::new();
    host.token(1, "x");
    host.crash();
    remove_contents(host.runtime_dir.path());
    for _ in 0..3 {
        host.start_in_vain();
    }
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Quarantined);
}

#[test]
fn starts_in_vain_keep_the_journal() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.crash();
    for _ in 0..3 {
        host.start_in_vain();
    }
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Up);
    assert_eq!(host.renew(1, "x"), BeatAnswer::Held { token, limit: None });
}

#[test]
fn without_its_journal_but_stopped_clean_it_grants_at_once() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.release(1, "x");
    host.store().close();
    let refused = host.call(Request::Claim(claim(2, "x", TTL))).0;
    assert!(matches!(refused, Err(Failure::Unavailable(_))), "{refused:?}");
    host.crash();
    remove_contents(host.runtime_dir.path());
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Up);
    assert!(host.token(2, "x") > token);
}

#[test]
fn closing_with_something_granted_is_not_clean() {
    let mut host = Host::new();
    host.token(1, "x");
    host.store().close();
    host.crash();
    remove_contents(host.runtime_dir.path());
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Quarantined);
}

#[test]
fn another_boot_grants_at_once() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.crash();
    host.now = Boottime::from_nanos(9);
    host.start(Uuid::from_u128(8), 5);
    assert_eq!(state(&mut host), UpstreamState::Up);
    assert!(host.token(2, "x") > token);
}

#[test]
fn without_journal_and_ledger_tokens_go_on_from_the_clock() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.crash();
    remove_contents(host.runtime_dir.path());
    remove_contents(host.state_dir.path());
    host.start(BOOT, CLOCK_US + 1_000_000);
    assert_eq!(host.token(2, "x"), CLOCK_US + 1_000_000);
    assert!(CLOCK_US + 1_000_000 > token);
}

#[test]
fn without_ledger_tokens_go_on_from_the_journal() {
    let mut host = Host::new();
    let token = host.token(1, "x");
    host.crash();
    remove_contents(host.state_dir.path());
    host.start(BOOT, 5);
    assert_eq!(host.token(2, "y"), token + 1);
}

#[test]
fn a_quarantine_can_be_ended() {
    let mut host = Host::new();
    host.token(1, "x");
    host.crash();
    remove_contents(host.runtime_dir.path());
    host.start(BOOT, 5);
    assert!(matches!(host.claim(2, "x"), ClaimAnswer::Quarantined { .. }));
    assert!(host.store().health().grants_nothing.unwrap().contains("quarantine"));
    let now = host.now;
    let left = host.store().end_quarantine(now).unwrap();
    assert!(left >= TTL && left <= TTL * 5 / 4, "{left:?}");
    assert_eq!(host.store().end_quarantine(now), None);
    assert_eq!(state(&mut host), UpstreamState::Up);
    host.token(3, "x");
}

#[test]
fn a_damaged_journal_is_not_believed() {
    let mut host = Host::new();
    host.token(1, "x");
    host.crash();
    let file = host.runtime_dir.path().join(FILE);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.pop();
    std::fs::write(&file, bytes).unwrap();
    host.start(BOOT, 5);
    assert_eq!(state(&mut host), UpstreamState::Quarantined);
}

use clap::Parser;
use tenure::wire::{DEFAULT_TENANT, ProgramView, Waiter};

use super::*;
use crate::args::Cli;

fn known(name: &str, tenant: &str, holders: Vec<Holder>) -> Known {
    let standing = Standing {
        tenant: tenant.to_owned(),
        kind: Kind::Leader,
        name: name.to_owned(),
        limit: None,
        holding: holders.len() as u64,
        holders,
        waiters: Vec::new(),
        waiting: 0,
        sessions: Vec::new(),
        members: 0,
    };
    let history = History {
        tenant: tenant.to_owned(),
        kind: Kind::Leader,
        name: name.to_owned(),
        changes: Vec::new(),
    };
    let ended_commands = BTreeMap::new();
    let (here, socket) = ("hosta".to_owned(), String::new());
    Known { standing, history, unknown: None, ended_commands, here, socket }
}

fn of(host: &str, name: &str) -> Holder {
    Holder { host: host.to_owned(), name: name.to_owned(), token: 7, ..Holder::default() }
}

/// The commands that are told.
fn next(known: &Known) -> Vec<String> {
    let told = known.explain(SystemTime::UNIX_EPOCH);
    let next = told.lines().filter_map(|line| line.strip_prefix("  next     "));
    next.map(str::to_owned).collect()
}

#[test]
fn the_next_commands_name_the_tenant() {
    let free = known("nightly", "acme", Vec::new());
    let expected = [
        "tenure run --leader nightly --tenant acme -- COMMAND",
        "tenure history leader --tenant acme nightly",
    ];
    assert_eq!(next(&free), expected);
    let held = known("nightly", DEFAULT_TENANT, vec![of("hostb", "x")]);
    let expected = ["ssh hostb tenure why leader nightly", "sudo tenure revoke leader nightly"];
    assert_eq!(next(&held), expected);
}

#[test]
fn root_is_told_the_socket_that_it_would_not_find() {
    let mut held = known("nightly", DEFAULT_TENANT, vec![of("hostb", "x")]);
    held.socket = option_for_root(Path::new(SERVICE_SOCKET));
    assert_eq!(next(&held)[1], "sudo tenure revoke leader nightly");
    held.socket = option_for_root(Path::new("/tmp/a b/api.sock"));
    let expected = "sudo tenure --socket '/tmp/a b/api.sock' revoke leader nightly";
    assert_eq!(next(&held)[1], expected);
}

#[test]
fn a_hostile_host_is_no_command() {
    for host in ["x;touch${IFS}/tmp/P;:", "-oProxyCommand=x", "\u{1b}]0;x\u{7}", "a b"] {
        let held = known("nightly", DEFAULT_TENANT, vec![of(host, "\u{1b}[2J")]);
        let told = held.explain(SystemTime::UNIX_EPOCH);
        let steers = |letter: char| letter != '\n' && tenure::wire::steers_terminal(letter);
        assert!(!told.contains("ssh ") && !told.contains(steers), "{told}");
        assert_eq!(next(&held)[0], "tenure history leader nightly");
    }
}

#[test]
fn the_next_commands_are_read_as_they_are_meant() {
    for name in ["nightly", "-x", "--json", "--"] {
        for tenant in [DEFAULT_TENANT, "acme", "-t"] {
            let mut waited = known(name, tenant, Vec::new());
            waited.standing.waiting = 1;
            let held = known(name, tenant, vec![of("hosta", "x")]);
            for line in
                [next(&known(name, tenant, Vec::new())), next(&waited), next(&held)].concat()
            {
                let words = line.split(' ').skip_while(|word| *word == "sudo");
                let read = Cli::try_parse_from(words).map(|cli| format!("{:?}", cli.command));
                let read = read.unwrap_or_else(|error| panic!("{line}: {error}"));
                let [name, tenant] = [name, tenant].map(|word| format!("{word:?}"));
                let is_default = tenant == format!("{DEFAULT_TENANT:?}");
                let names = |word: &String| read.contains(word.as_str());
                let is_doctor = line == "tenure doctor";
                assert!(is_doctor || names(&name) && (is_default || names(&tenant)), "{read}");
            }
        }
    }
}

#[test]
fn it_says_no_more_than_its_help_promises() {
    let long = "x".repeat(70_000);
    let held = |holders| {
        let mut known = known("gpu", DEFAULT_TENANT, vec![of(&long, &long); holders]);
        known.standing.holders.iter_mut().for_each(|holder| holder.pid = Some(1));
        known.standing.holding = 9;
        known.standing.waiting = 9;
        let waiter = |position| Waiter {
            host: long.clone(),
            name: long.clone(),
            position,
            ..Waiter::default()
        };
        known.standing.waiters = (1..=9).map(waiter).collect();
        let change = |token| HistoryEntry {
            ago_ms: 1,
            what: Happened::Lost,
            token,
            host: long.clone(),
            name: long.clone(),
            program: ProgramView::default(),
            held_ms: None,
            reason: Some(long.clone()),
            detail: None,
            exit_status: None,
            by: None,
        };
        known.history.changes = (20..40).map(change).collect();
        known.explain(SystemTime::UNIX_EPOCH)
    };
    for told in [1, 2, 9].map(held) {
        assert!(told.lines().count() <= 14, "{told}");
        assert!(told.lines().all(|line| line.chars().count() < 2_000), "{told}");
    }
}

//! The checker finds the faults that it is for.

use super::model::{Done, History, NEVER};

const TTL: i64 = 1_000;

/// Claims that come and go on one resource, all of them legal.
fn legal() -> History {
    let mut history = History::default();
    let mut add = |times, done| history.add(0, times, done);
    add([0, 10], Done::Granted(1, 5));
    add([5, 20], Done::Contended(2, Some(1)));
    add([100, 110], Done::Beaten(1, Some(5)));
    add([120, 130], Done::Seen(Some((1, 5))));
    add([200, 220], Done::Released(1, Some(true)));
    // While the first is released.
    add([205, 230], Done::Granted(3, 6));
    add([205 + TTL, NEVER], Done::Expired(3));
    // Nobody was told of this grant, but others saw it.
    add([205 + TTL, 5_000], Done::Unsure(4));
    add([205 + 2 * TTL, NEVER], Done::Expired(4));
    add([1_300, 1_310], Done::Contended(5, Some(4)));
    add([2_300, 2_310], Done::Granted(6, 9));
    history
}

#[track_caller]
fn found(plant: impl FnOnce(&mut History)) {
    let mut history = legal();
    plant(&mut history);
    assert_eq!(history.illegal().len(), 1);
}

#[test]
fn a_legal_history_is_found_to_be_so() {
    legal().check();
}

#[test]
fn a_planted_double_grant_is_found() {
    found(|history| history.add(0, [150, 160], Done::Granted(9, 7)));
}

#[test]
fn a_planted_token_that_comes_again_or_goes_back_is_found() {
    for token in [9, 8] {
        found(|history| {
            history.add(0, [2_400, 2_410], Done::Released(6, Some(true)));
            history.add(0, [2_500, 2_510], Done::Granted(7, token));
        });
    }
    let mut history = legal();
    history.add(0, [2_500, 2_510], Done::Granted(7, 9));
    assert_eq!(history.repeated_tokens(), [(0, 9)]);
}

#[test]
fn a_planted_early_expiry_is_found() {
    // The one before has a while to go.
    found(|history| history.add(0, [2_350, 2_360], Done::Granted(7, 10)));
    found(|history| history.add(0, [1_190, 1_200], Done::Beaten(3, None)));
}

#[test]
fn a_planted_stale_read_is_found() {
    found(|history| history.add(0, [300, 310], Done::Seen(Some((1, 5)))));
    found(|history| history.add(0, [2_400, 2_410], Done::Seen(None)));
    found(|history| history.add(0, [2_400, 2_410], Done::Contended(8, Some(4))));
}

#[test]
fn a_planted_beat_that_revives_what_others_had_is_found() {
    found(|history| history.add(0, [2_400, 2_410], Done::Beaten(3, Some(6))));
}

#[test]
fn a_claim_that_was_sent_again_is_granted_anew_only_once_its_first_grant_ran_out() {
    let anew = |seen_at: i64| {
        let mut history = legal();
        // Others saw the first grant, of which its caller never heard.
        history.add(0, [4_000, 4_000 + 2 * TTL], Done::Granted(7, 12));
        history.add(0, [4_000, 4_000 + 2 * TTL], Done::Unsure(7));
        history.add(0, [4_000 + TTL, 4_000 + 2 * TTL], Done::Expired(7));
        history.add(0, [4_100, 4_110], Done::Seen(Some((7, 11))));
        history.add(0, [seen_at, seen_at + 10], Done::Seen(Some((7, 12))));
        // The last of the legal ones ends before.
        history.add(0, [3_500, 3_510], Done::Released(6, Some(true)));
        history
    };
    anew(4_500 + TTL).check();
    assert_eq!(anew(4_500).illegal().len(), 1);
}

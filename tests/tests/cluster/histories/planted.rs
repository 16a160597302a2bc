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

/// A claim that was sent again and answered late, of whose first copy others saw the grant, and what else was seen.
fn sent_again(answer: Done, seen: impl IntoIterator<Item = (i64, Done)>) -> History {
    const ANSWERED: i64 = 4_000 + 2 * TTL;
    let mut history = legal();
    // The last of the legal ones ends before.
    history.add(0, [3_500, 3_510], Done::Released(6, Some(true)));
    history.add(0, [4_000, ANSWERED], answer);
    history.add(0, [4_000, ANSWERED], Done::Unheard(7));
    history.add(0, [4_000 + TTL, ANSWERED], Done::UnheardExpired(7));
    for (at, done) in seen {
        history.add(0, [at, at + 10], done);
    }
    history
}

#[test]
fn a_claim_that_was_sent_again_is_granted_anew_only_once_its_first_grant_ran_out() {
    let first = (4_100, Done::Seen(Some((7, 11))));
    let anew = |at: i64| {
        sent_again(Done::Granted(7, 12), [first.clone(), (at, Done::Seen(Some((7, 12))))])
    };
    anew(4_500 + TTL).check();
    assert_eq!(anew(4_500).illegal().len(), 1);
    // It need not have run out: the copy is told of the first one's grant, and that is held on.
    let beaten = Done::Beaten(7, Some(11));
    sent_again(Done::Granted(7, 11), [first.clone(), (4_100 + 2 * TTL, beaten)]).check();
}

#[test]
fn a_claim_that_was_sent_again_is_refused_only_once_its_first_grant_ran_out() {
    let first = (4_100, Done::Seen(Some((7, 11))));
    let refused = |at: i64| {
        sent_again(Done::Contended(7, Some(8)), [first.clone(), (at, Done::Granted(8, 12))])
    };
    refused(4_500 + TTL).check();
    assert_eq!(refused(4_500).illegal().len(), 1);
}

//! The places of connections.

use super::*;

fn seats(connections: usize, per_address: usize, asks_for_keys: bool) -> Arc<Seats> {
    let (anonymous, anonymous_per_address) = (None, None);
    let limits = Limits { connections, per_address, anonymous, anonymous_per_address };
    Seats::new(limits, asks_for_keys)
}

fn take(seats: &Arc<Seats>, host: u8) -> Seat {
    seats.take(address(host)).unwrap().0
}

fn address(host: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, host])
}

fn is_there(seat: &Seat) -> bool {
    !seat.end.is_cancelled()
}

#[test]
fn strangers_make_way_for_each_other_and_never_a_caller() {
    let seats = seats(16, 16, true);
    let caller = take(&seats, 1);
    caller.prove(Mark::of("a"));
    let strangers: Vec<_> = (0..8).map(|_| take(&seats, 2)).collect();
    let there: Vec<_> = strangers.iter().map(is_there).collect();
    assert_eq!(there, [false, false, false, false, true, true, true, true]);
    assert!(is_there(&caller));
    let other = take(&seats, 3);
    assert!(is_there(&other) && !is_there(&strangers[4]));
    drop((caller, strangers, other));
    let state = seats.state();
    assert!(state.taken.is_empty() && state.by_address.is_empty());
    assert!(state.by_principal.is_empty() && state.strangers.len() == 0);
}

#[test]
fn a_caller_leaves_its_place_to_strangers() {
    let seats = seats(16, 16, true);
    let callers: Vec<_> = (0..20)
        .map(|at| {
            let seat = take(&seats, 1 + at % 4);
            seat.prove(Mark::of(&format!("p{at}")));
            seat
        })
        .collect();
    let there = callers.iter().filter(|seat| is_there(seat)).count();
    assert_eq!(there, 16, "12 among callers, 4 among strangers, the others made way");
    let another = take(&seats, 9);
    assert!(is_there(&another), "a place is left for strangers at any time");
}

#[test]
fn one_principal_leaves_places_to_others() {
    let seats = seats(16, 16, true);
    let prove = |principal: &str| {
        let seat = take(&seats, 1);
        seat.prove(Mark::of(principal));
        seat
    };
    let greedy: Vec<_> = (0..12).map(|_| prove("greedy")).collect();
    assert!(greedy.iter().filter(|seat| seat.is_proven.load(Relaxed)).count() <= 7);
    let other = prove("other");
    assert!(other.is_proven.load(Relaxed));
}

#[test]
fn one_principal_leaves_places_of_its_address_to_others() {
    let seats = seats(400, 100, true);
    let prove = |principal: &str| {
        let seat = take(&seats, 1);
        seat.prove(Mark::of(principal));
        seat
    };
    let greedy: Vec<_> = (0..100).map(|_| prove("greedy")).collect();
    assert!(greedy.iter().all(is_there), "the places are free");
    let other = prove("other");
    assert!(other.is_proven.load(Relaxed));
    assert_eq!(greedy.iter().filter(|seat| is_there(seat)).count(), 99);
    let more: Vec<_> = (0..200).map(|_| prove("greedy")).collect();
    assert!(is_there(&other), "a surplus makes way before callers within their shares");
    drop((greedy, more, other));
    let state = seats.state();
    assert!(state.taken.is_empty() && state.by_address.is_empty());
    assert!(state.by_principal.is_empty() && state.by_principal_at.is_empty());
    assert_eq!((state.strangers.len(), state.surplus.len()), (0, 0));
}

#[test]
fn many_principals_that_fill_an_address_leave_places_to_new_ones() {
    let seats = seats(400, 40, true);
    let callers: Vec<_> = (0..40)
        .map(|at| {
            let seat = take(&seats, 1);
            seat.prove(Mark::of(&format!("p{}", at % 4)));
            seat
        })
        .collect();
    let (new, displaced) = seats.take(address(1)).unwrap();
    let full = Full { limit: "limits.connections_per_address", max: 40 };
    assert_eq!(displaced, Some(full));
    let gone: Vec<_> = (0..40).filter(|at| !is_there(&callers[*at])).collect();
    assert_eq!(gone, [30], "the surplus that has been there longest");
    new.prove(Mark::of("new"));
    assert!(is_there(&new));
    assert_eq!(seats.state().surplus.len(), 10);
}

#[test]
fn a_surplus_is_a_caller_once_there_is_room() {
    let seats = seats(64, 8, true);
    let mut held: Vec<_> = (0..4)
        .map(|_| {
            let seat = take(&seats, 1);
            seat.prove(Mark::of("a"));
            seat
        })
        .collect();
    assert_eq!(seats.state().surplus.len(), 1);
    drop(held.remove(0));
    held[2].prove(Mark::of("a"));
    let state = seats.state();
    assert_eq!((state.surplus.len(), state.callers()), (0, 3));
    drop(state);
}

#[test]
fn an_address_that_is_full_of_callers_within_their_shares_gets_no_more() {
    let seats = seats(64, 2, true);
    let _callers: Vec<_> = ["a", "b"]
        .map(|principal| {
            let seat = take(&seats, 1);
            seat.prove(Mark::of(principal));
            seat
        })
        .into();
    let full = seats.take(address(1)).unwrap_err();
    assert_eq!(full, Full { limit: "limits.connections_per_address", max: 2 });
    take(&seats, 2);
}

#[test]
fn a_caller_that_is_silent_for_long_is_a_stranger_again() {
    let seats = seats(16, 16, true);
    let seat = take(&seats, 1);
    seat.begin(Mark::of("a"));
    let later = clock::now() + PROVEN_FOR * 2;
    seat.look(later, Duration::ZERO);
    assert!(seat.is_proven.load(Relaxed), "its call is under way");
    seat.is_over();
    seat.look(later, PROVEN_FOR * 4);
    assert!(seat.is_proven.load(Relaxed), "it said that it would be silent");
    seat.look(later, Duration::ZERO);
    assert!(!seat.is_proven.load(Relaxed) && is_there(&seat));
    assert_eq!(seats.state().strangers.len(), 1);
    seat.prove(Mark::of("a"));
    assert_eq!(seats.state().strangers.len(), 0);
}

#[test]
fn where_no_keys_are_asked_for_the_bounds_are_of_all_and_of_addresses() {
    let seats = seats(4, 2, false);
    let held: Vec<_> = (0..4).map(|at| take(&seats, 1 + at / 2)).collect();
    assert!(seats.take(address(1)).is_err());
    held[0].prove(Mark::of("local"));
    assert!(held.iter().all(is_there));
}

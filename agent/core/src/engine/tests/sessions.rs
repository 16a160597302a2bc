//! Announced sessions.

use super::check;

#[test]
fn a_session_knows_its_role_by_its_beats() {
    check(
        "0 beat s1
         = gone Unknown
         0 announce s1 in p
         = announced
         ! changed master/p
         0 beat s1
         = peer
         0 claim a by s1 master/p
         = held 1
         ! changed master/p
         0 beat s1
         = master
         0 announce s2 in p
         = announced
         ! changed master/p
         1 claim b by s2 master/p priority=1
         = held 2
         ! lost a
         ! message to s1: MasterPreempted s2-name
         ! changed master/p
         1 beat s1
         = peer
         1 beat s2
         = master
         1 inspect master/p
         = held [b:2@0] sessions [s1-name s2-name]",
    );
}

#[test]
fn the_end_of_a_session_is_told_once() {
    check(
        "0 announce s1 in p
         = announced
         ! changed master/p
         0 announce s1 in p
         = announced
         1 end s1 in p
         = true
         ! changed master/p
         ! message to p: session_ended s1-name
         1 end s1 in p
         = false",
    );
}

#[test]
fn a_session_lives_by_its_beats() {
    check(
        "0 announce s1 in p
         = announced
         ! changed master/p
         60 beat s1
         = peer
         149 beat s1
         = peer
         238 wait
         239 wait
         ! changed master/p
         ! message to p: session_ended s1-name
         240 beat s1
         = gone Unknown",
    );
}

#[test]
fn a_session_can_move() {
    check(
        "0 announce s1 in p
         = announced
         ! changed master/p
         0 announce s1 in q
         = announced
         ! changed master/p
         ! changed master/q
         0 inspect master/p
         = held []
         0 inspect master/q
         = held [] sessions [s1-name]",
    );
}

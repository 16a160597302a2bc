//! Leaders and masters.

use super::check;

#[test]
fn one_leader_at_a_time() {
    check(
        "0 claim a by s1 leader/x
         = held 1
         ! changed leader/x
         10 claim b by s2 leader/x
         = contended a free_in=20
         11 release a leader/x
         = true
         ! changed leader/x
         11 claim c by s2 leader/x
         = held 2
         ! changed leader/x",
    );
}

#[test]
fn names_kinds_and_tenants_do_not_block_each_other() {
    check(
        "0 claim a by s1 leader/x
         = held 1
         ! changed leader/x
         0 claim b by s1 leader/y
         = held 2
         ! changed leader/y
         0 claim c by s1 lease/x
         = held 3
         ! changed lease/x
         0 claim d by s1 other:leader/x
         = held 4
         ! changed other:leader/x",
    );
}

#[test]
fn the_same_session_is_contended_by_itself() {
    check(
        "0 claim a by s1 leader/x
         = held 1
         ! changed leader/x
         0 claim b by s1 leader/x
         = contended a free_in=30
         0 claim m by s1 master/p
         = held 2
         ! changed master/p
         0 claim n by s1 master/p priority=9
         = contended m free_in=30",
    );
}

#[test]
fn the_same_claim_is_one_grant_and_counts_as_a_beat() {
    check(
        "0 claim a by s1 leader/x
         = held 1
         ! changed leader/x
         20 claim a by s1 leader/x
         = held 1
         40 claim b by s2 leader/x
         = contended a free_in=10",
    );
}

#[test]
fn a_beat_gives_a_whole_ttl() {
    check(
        "0 claim a by s1 leader/x
         = held 1
         ! changed leader/x
         29 renew a leader/x
         = held 1
         58 renew a leader/x
         = held 1
         87 claim b by s2 leader/x
         = contended a free_in=1
         88 claim c by s2 leader/x
         = held 2
         ! lost a
         ! changed leader/x",
    );
}

#[test]
fn a_shorter_beat_does_not_shorten_a_grant() {
    check(
        "0 claim a by s1 leader/x ttl=30
         = held 1
         ! changed leader/x
         1 renew a leader/x ttl=2
         = held 1
         20 renew a leader/x ttl=2
         = held 1
         29 claim b by s2 leader/x
         = contended a free_in=1",
    );
}

#[test]
fn a_higher_priority_preempts_a_master() {
    check(
        "0 claim a by s1 master/p
         = held 1
         ! changed master/p
         1 claim b by s2 master/p priority=100
         = held 2
         ! lost a
         ! message to s1: MasterPreempted s2-name
         ! changed master/p
         2 renew a master/p
         = gone Preempted
         2 claim a by s1 master/p
         = gone Preempted
         3 claim c by s3 master/p priority=100
         = contended b free_in=28
         3 claim d by s1 master/p priority=-1
         = contended b free_in=28
         3 inspect master/p
         = held [b:2@2]",
    );
}

#[test]
fn a_master_without_successor_is_reported_once() {
    check(
        "0 claim a by s1 master/p
         = held 1
         ! changed master/p
         5 release a master/p
         = true
         ! changed master/p
         ! message to p: master_released s1-name
         5 release a master/p
         = false
         6 claim b by s2 master/p
         = held 2
         ! changed master/p
         36 wait
         ! lost b
         ! changed master/p
         ! message to p: master_released s2-name
         40 wait",
    );
}

#[test]
fn a_master_that_is_followed_in_the_same_step_is_not_reported() {
    check(
        "0 claim a by s1 master/p
         = held 1
         ! changed master/p
         30 claim b by s2 master/p
         = held 2
         ! lost a
         ! changed master/p",
    );
}

#[test]
fn an_unknown_claim_is_forgotten_and_one_of_another_resource_a_conflict() {
    check(
        "0 claim a by s1 leader/x
         = held 1
         ! changed leader/x
         0 renew b leader/x
         = gone Unknown
         0 renew b leader/y
         = gone Unknown
         0 renew b semaphore/y
         = gone Unknown
         0 renew a leader/y
         = gone Conflict
         0 claim a by s1 leader/y
         = gone Conflict
         0 release a leader/y
         = false
         0 renew a leader/x
         = held 1",
    );
}

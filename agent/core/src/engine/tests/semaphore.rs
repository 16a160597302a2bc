//! Semaphores.

use super::check;

#[test]
fn permits_go_in_the_order_of_claiming() {
    check(
        "# Each claim is a permit of its own, also of one session.
         0 claim a by s1 semaphore/g limit=2
         = held 1 of 2
         ! changed semaphore/g
         0 claim b by s1 semaphore/g limit=2
         = held 2 of 2
         ! changed semaphore/g
         1 claim c by s2 semaphore/g limit=2
         = waiting 1 of 2
         ! changed semaphore/g
         2 claim d by s3 semaphore/g limit=2
         = waiting 2 of 2
         ! changed semaphore/g
         3 inspect semaphore/g
         = held [a:1@3 b:2@3] waiting [c:0@2 d:0@1] of 2
         4 release b semaphore/g
         = true
         ! changed semaphore/g
         ! granted c
         4 renew c semaphore/g
         = held 3 of 2
         4 renew d semaphore/g
         = waiting 1 of 2
         5 release a semaphore/g
         = true
         ! changed semaphore/g
         ! granted d
         5 claim d by s3 semaphore/g limit=2
         = held 4 of 2",
    );
}

#[test]
fn trying_once_neither_queues_nor_overtakes() {
    check(
        "0 claim a by s1 semaphore/g
         = held 1 of 1
         ! changed semaphore/g
         5 claim b by s2 semaphore/g try
         = contended a free_in=25 of 1
         5 renew b semaphore/g
         = gone Unknown
         5 claim b by s2 semaphore/g
         = waiting 1 of 1
         ! changed semaphore/g",
    );
}

#[test]
fn a_claim_with_another_limit_changes_it_for_everybody() {
    check(
        "0 claim a by s1 semaphore/g limit=1
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s2 semaphore/g limit=1
         = waiting 1 of 1
         ! changed semaphore/g
         0 claim c by s3 semaphore/g limit=1
         = waiting 2 of 1
         ! changed semaphore/g
         0 claim d by s4 semaphore/g limit=3
         = waiting 1 of 3 instead of 1
         ! changed semaphore/g
         ! granted b
         ! changed semaphore/g
         ! granted c
         ! changed semaphore/g
         # Lowering takes from nobody.
         1 claim e by s5 semaphore/g limit=1 try
         = contended a free_in=29 of 1 instead of 3
         ! changed semaphore/g
         1 renew a semaphore/g
         = held 1 of 1
         1 release a semaphore/g
         = true
         ! changed semaphore/g
         1 release b semaphore/g
         = true
         ! changed semaphore/g
         1 release c semaphore/g
         = true
         ! changed semaphore/g
         ! granted d",
    );
}

#[test]
fn a_claim_that_names_no_limit_takes_the_one_in_force() {
    check(
        "0 claim a by s1 semaphore/g limit=1 keep
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s2 semaphore/g limit=3
         = held 2 of 3 instead of 1
         ! changed semaphore/g
         0 release a semaphore/g
         = true
         ! changed semaphore/g
         0 claim c by s3 semaphore/g limit=1 keep
         = held 3 of 3
         ! changed semaphore/g
         0 release b semaphore/g
         = true
         ! changed semaphore/g
         1 restart
         1 renew c semaphore/g
         = held 3 of 3
         1 claim d by s4 semaphore/g limit=2 try
         = held 4 of 2 instead of 3
         ! changed semaphore/g
         1 claim e by s5 semaphore/g limit=1 try
         = contended c free_in=30 of 1 instead of 2
         ! changed semaphore/g",
    );
}

#[test]
fn a_limit_goes_with_the_last_user() {
    check(
        "0 claim a by s1 semaphore/g limit=5
         = held 1 of 5
         ! changed semaphore/g
         0 release a semaphore/g
         = true
         ! changed semaphore/g
         0 inspect semaphore/g
         = held []
         0 claim b by s1 semaphore/g limit=0
         = waiting 1 of 0
         ! changed semaphore/g
         0 claim c by s1 semaphore/g limit=0 try
         = contended nobody of 0",
    );
}

#[test]
fn a_waiter_lives_by_its_beats() {
    check(
        "0 claim a by s1 semaphore/g ttl=300
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s2 semaphore/g
         = waiting 1 of 1
         ! changed semaphore/g
         0 claim c by s3 semaphore/g
         = waiting 2 of 1
         ! changed semaphore/g
         20 renew c semaphore/g
         = waiting 2 of 1
         30 wait
         ! lost b
         ! changed semaphore/g
         30 renew c semaphore/g
         = waiting 1 of 1
         31 renew b semaphore/g
         = gone Expired
         # It may queue again, at the end.
         31 claim b by s2 semaphore/g
         = waiting 2 of 1
         ! changed semaphore/g",
    );
}

#[test]
fn a_grant_passes_over_dead_waiters() {
    check(
        "0 claim a by s1 semaphore/g ttl=40
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s2 semaphore/g ttl=50
         = waiting 1 of 1
         ! changed semaphore/g
         0 claim c by s3 semaphore/g ttl=90
         = waiting 2 of 1
         ! changed semaphore/g
         # Both a and b are overdue.
         60 renew c semaphore/g
         = held 2 of 1
         ! lost a
         ! changed semaphore/g
         ! lost b
         ! changed semaphore/g
         ! granted c",
    );
}

#[test]
fn a_granted_waiter_holds_for_its_own_ttl() {
    check(
        "0 claim a by s1 semaphore/g
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s2 semaphore/g ttl=10
         = waiting 1 of 1
         ! changed semaphore/g
         5 release a semaphore/g
         = true
         ! changed semaphore/g
         ! granted b
         5 renew b semaphore/g ttl=10
         = held 2 of 1
         14 claim c by s3 semaphore/g try
         = contended b free_in=1 of 1
         15 claim d by s3 semaphore/g try
         = held 3 of 1
         ! lost b
         ! changed semaphore/g",
    );
}

#[test]
fn a_granted_waiter_that_died_keeps_the_permit_for_moments_only() {
    check(
        "0 claim a by s1 semaphore/g
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s2 semaphore/g
         = waiting 1 of 1
         ! changed semaphore/g
         0 claim c by s3 semaphore/g
         = waiting 2 of 1
         ! changed semaphore/g
         5 release a semaphore/g
         = true
         ! changed semaphore/g
         ! granted b
         10 renew c semaphore/g
         = held 3 of 1
         ! lost b
         ! changed semaphore/g
         ! granted c",
    );
}

#[test]
fn a_cancelled_wait_leaves_nothing_behind() {
    check(
        "0 claim a by s1 semaphore/g
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s2 semaphore/g
         = waiting 1 of 1
         ! changed semaphore/g
         0 claim c by s2 semaphore/g
         = waiting 2 of 1
         ! changed semaphore/g
         1 release b semaphore/g
         = true
         ! changed semaphore/g
         1 claim b by s2 semaphore/g
         = gone Released
         1 inspect semaphore/g
         = held [a:1@1] waiting [c:0@1] of 1",
    );
}

//! Marks of ended claims, max_hold, revocation, restart.

use super::check;

#[test]
fn a_released_claim_is_never_granted_again() {
    check(
        "0 claim a by s1 leader/x
         = held 1
         ! changed leader/x
         1 release a leader/x
         = true
         ! changed leader/x
         1 release a leader/x
         = false
         2 claim a by s1 leader/x
         = gone Released
         2 renew a leader/x
         = gone Released
         60 claim a by s1 leader/x
         = gone Released
         # The second release renewed the mark, but not for ever.
         62 claim a by s1 leader/x
         = held 2
         ! changed leader/x",
    );
}

#[test]
fn a_release_that_overtakes_its_claim_wins() {
    check(
        "0 release a leader/x
         = false
         1 claim a by s1 leader/x
         = gone Released",
    );
}

#[test]
fn an_expired_claim_is_lost_to_beats_but_may_be_claimed_anew() {
    check(
        "0 claim a by s1 leader/x
         = held 1
         ! changed leader/x
         30 renew a leader/x
         = gone Expired
         ! lost a
         ! changed leader/x
         31 renew a leader/x
         = gone Expired
         31 claim a by s1 leader/x
         = held 2
         ! changed leader/x
         61 release a leader/x
         = false
         ! lost a
         ! changed leader/x
         # Whoever released it has given it up.
         62 claim a by s1 leader/x
         = gone Released",
    );
}

#[test]
fn a_released_waiter_does_not_queue_again_even_if_it_was_purged() {
    check(
        "0 claim a by s1 semaphore/g ttl=300
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s2 semaphore/g
         = waiting 1 of 1
         ! changed semaphore/g
         30 release b semaphore/g
         = false
         ! lost b
         ! changed semaphore/g
         31 claim b by s2 semaphore/g
         = gone Released",
    );
}

#[test]
fn max_hold_ends_a_grant_however_often_it_is_renewed() {
    check(
        "0 claim a by s1 leader/x max_hold=45
         = held 1
         ! changed leader/x
         20 renew a leader/x
         = held 1
         40 renew a leader/x
         = held 1
         44 claim b by s2 leader/x
         = contended a free_in=1
         45 renew a leader/x
         = gone MaxHold
         ! lost a
         ! changed leader/x",
    );
}

#[test]
fn max_hold_counts_from_the_grant() {
    check(
        "0 claim a by s1 semaphore/g
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s2 semaphore/g max_hold=10
         = waiting 1 of 1
         ! changed semaphore/g
         20 release a semaphore/g
         = true
         ! changed semaphore/g
         ! granted b
         24 renew b semaphore/g
         = held 2 of 1
         29 renew b semaphore/g
         = held 2 of 1
         30 renew b semaphore/g
         = gone MaxHold
         ! lost b
         ! changed semaphore/g",
    );
}

#[test]
fn revocation_takes_all_grants_or_one() {
    check(
        "0 claim a by s1 semaphore/g limit=2
         = held 1 of 2
         ! changed semaphore/g
         0 claim b by s2 semaphore/g limit=2
         = held 2 of 2
         ! changed semaphore/g
         0 claim c by s3 semaphore/g limit=2
         = waiting 1 of 2
         ! changed semaphore/g
         0 revoke semaphore/g token=9
         = revoked 0
         0 revoke semaphore/g token=2
         = revoked 1
         ! lost b
         ! changed semaphore/g
         ! granted c
         0 renew b semaphore/g
         = gone Revoked
         0 revoke semaphore/g
         = revoked 2
         ! lost a
         ! changed semaphore/g
         ! lost c
         ! changed semaphore/g
         0 claim m by s1 master/p
         = held 4
         ! changed master/p
         0 revoke master/p token=3
         = revoked 0
         0 revoke master/p
         = revoked 1
         ! lost m
         ! changed master/p
         ! message to p: master_released s1-name",
    );
}

#[test]
fn a_restart_frees_what_its_holder_knows_to_have_run_out() {
    check(
        "0 claim a by s1 leader/x ttl=1000
         = held 1
         ! changed leader/x
         0 claim b by s1 leader/y ttl=1000
         = held 2
         ! changed leader/y
         999 restart gone=a
         999 claim c by s2 leader/x
         = held 3
         ! lost a
         ! changed leader/x
         999 claim d by s2 leader/y try
         = contended b free_in=1000",
    );
}

#[test]
fn a_restart_keeps_holders_queues_limits_sessions_and_versions() {
    check(
        "0 claim a by s1 semaphore/g limit=1
         = held 1 of 1
         ! changed semaphore/g
         0 claim b by s2 semaphore/g limit=2
         = held 2 of 2 instead of 1
         ! changed semaphore/g
         0 claim c by s3 semaphore/g limit=2
         = waiting 1 of 2
         ! changed semaphore/g
         0 claim d by s4 semaphore/g limit=2
         = waiting 2 of 2
         ! changed semaphore/g
         0 announce s1 in p
         = announced
         ! changed master/p
         0 claim l by s1 lease/l grace=60 max_hold=100
         = held 3
         ! changed lease/l
         20 restart
         # A whole ttl from the restart on.
         49 inspect semaphore/g
         = held [a:1@49 b:2@49] waiting [c:0@49 d:0@49] of 2
         49 beat s1
         = peer
         49 release b semaphore/g
         = true
         ! changed semaphore/g
         ! granted c
         49 renew c semaphore/g
         = held 4 of 2
         49 routes
         = version 1 [l s1-name \"\" 254 active 3 v1]
         50 renew l lease/l
         = held 3
         ! lost a
         ! changed semaphore/g
         ! lost d
         ! changed semaphore/g
         ! changed lease/l
         55 restart
         99 renew c semaphore/g
         = gone Expired
         ! lost c
         ! changed semaphore/g
         ! changed lease/l
         100 renew l lease/l
         = gone Expired
         ! lost l
         ! changed lease/l",
    );
}

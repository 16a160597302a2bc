//! Leases, their grace, and the routing table.

use super::check;

#[test]
fn in_its_grace_a_lease_is_kept_for_its_session() {
    check(
        "0 claim a by s1 lease/l grace=60
         = held 1
         ! changed lease/l
         10 claim b by s2 lease/l grace=60
         = contended a free_in=80
         30 wait
         ! changed lease/l
         31 claim b by s2 lease/l grace=60
         = contended a free_in=59
         32 claim c by s1 lease/l grace=60
         = held 2
         ! changed lease/l
         32 renew a lease/l
         = gone Expired",
    );
}

#[test]
fn a_renewal_in_grace_keeps_the_token() {
    check(
        "0 claim a by s1 lease/l ttl=10 grace=60
         = held 1
         ! changed lease/l
         20 renew a lease/l ttl=10
         = held 1
         ! changed lease/l
         30 renew x lease/l
         = gone Unknown
         ! changed lease/l
         89 renew a lease/l ttl=10
         = held 1
         ! changed lease/l
         159 claim b by s2 lease/l
         = held 2
         ! lost a
         ! changed lease/l",
    );
}

#[test]
fn after_its_grace_a_lease_is_anybodys() {
    check(
        "0 claim a by s1 lease/l grace=60
         = held 1
         ! changed lease/l
         30 wait
         ! changed lease/l
         90 wait
         ! lost a
         ! changed lease/l
         90 renew a lease/l
         = gone Expired
         90 claim b by s2 lease/l
         = held 2
         ! changed lease/l",
    );
}

#[test]
fn there_is_no_grace_after_a_release() {
    check(
        "0 claim a by s1 lease/l grace=60
         = held 1
         ! changed lease/l
         1 release a lease/l
         = true
         ! changed lease/l
         1 claim b by s2 lease/l
         = held 2
         ! changed lease/l",
    );
}

#[test]
fn a_release_ends_the_grace() {
    check(
        "0 claim a by s1 lease/l grace=60
         = held 1
         ! changed lease/l
         31 release a lease/l
         = true
         ! changed lease/l
         31 claim b by s2 lease/l
         = held 2
         ! changed lease/l",
    );
}

#[test]
fn grace_ends_with_max_hold() {
    check(
        "0 claim a by s1 lease/l grace=60 max_hold=40
         = held 1
         ! changed lease/l
         30 wait
         ! changed lease/l
         40 claim b by s2 lease/l
         = held 2
         ! lost a
         ! changed lease/l",
    );
}

#[test]
fn every_change_is_a_version_of_the_routing_table() {
    check(
        "0 routes
         = version 0
         0 claim a by s1 lease/l grace=60 address=10.0.0.7:8982
         = held 1
         ! changed lease/l
         0 claim b by s1 lease/k partition=7 status=warm
         = held 2
         ! changed lease/k
         1 routes
         = version 2 [k s1-name \"\" 7 warm 2 v2] [l s1-name \"10.0.0.7:8982\" 254 active 1 v1]
         2 renew a lease/l
         = held 1
         2 routes l
         = version 2 [l s1-name \"10.0.0.7:8982\" 254 active 1 v1]
         3 claim a by s1 lease/l grace=60 address=10.0.0.8:8982
         = held 1
         ! changed lease/l
         3 routes l
         = version 3 [l s1-name \"10.0.0.8:8982\" 254 active 1 v3]
         # Both expire; only one has a grace.
         33 routes
         = version 5 [l s1-name \"10.0.0.8:8982\" 254 expiring 1 v4]
         ! changed lease/l
         ! lost b
         ! changed lease/k
         34 renew a lease/l
         = held 1
         ! changed lease/l
         35 routes
         = version 6 [l s1-name \"10.0.0.8:8982\" 254 active 1 v6]
         36 release a lease/l
         = true
         ! changed lease/l
         36 routes
         = version 7
         37 claim c by s2 lease/l
         = held 3
         ! changed lease/l
         37 routes l
         = version 8 [l s2-name \"\" 254 active 3 v8]",
    );
}

#[test]
fn other_tenants_are_not_listed() {
    check(
        "0 claim a by s1 other:lease/l
         = held 1
         ! changed other:lease/l
         0 routes
         = version 0",
    );
}

//! PURE. What INFO says, and what is wrong with it.

use std::collections::HashMap;

use tenure_wire::Check;

use super::names;

/// Oldest Redis whose scripts, RESP3 and tracking do what is needed.
const REDIS_MIN: (u64, u64) = (6, 2);
/// Latest major version of Redis that this version of Tenure was made for.
const REDIS_MAJOR_MAX: u64 = 8;
/// The part of maxmemory and maxclients above which they are nearly used up, percent.
const NEARLY_PERCENT: u64 = 90;

/// The server's own account of itself: the fields of INFO.
#[derive(Debug, Default)]
pub(in crate::redis) struct Info(HashMap<String, String>);

impl Info {
    /// Takes the text apart; lines that are no fields are skipped.
    pub(in crate::redis) fn parse(text: &str) -> Info {
        let fields = text.lines().filter(|line| !line.starts_with('#'));
        let fields = fields.filter_map(|line| line.trim_end().split_once(':'));
        Info(fields.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    pub(in crate::redis) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok()
    }

    /// Everything that can be said without asking more.
    pub(super) fn checks(&self, policy: Option<&str>) -> Vec<Check> {
        vec![
            self.server(),
            self.topology(),
            self.eviction(policy),
            self.memory(),
            self.replication(),
            self.persistence(),
            self.clients(),
        ]
    }

    /// The program and its version.
    fn server(&self) -> Check {
        const NAME: &str = names::SERVER;
        let (Some(redis), name) = (self.text("redis_version"), self.text("server_name")) else {
            let remedy = "look whether a proxy answers instead of the server";
            return Check::unknown(NAME, "INFO does not say which version it is", remedy);
        };
        if let Some(dragonfly) = self.text("dragonfly_version") {
            let detail = format!("Dragonfly {dragonfly}, which Tenure was not made for");
            let remedy = "use Redis 6.2 or later, or Valkey";
            return Check::unknown(NAME, detail, remedy);
        }
        match (name, self.text("valkey_version")) {
            (_, Some(valkey)) => {
                return Check::ok(NAME, format!("Valkey {valkey}, as Redis {redis}"));
            }
            (Some(other), None) if other != "redis" => {
                let detail = format!("{other}, as Redis {redis}, which Tenure was not made for");
                let remedy = "use Redis 6.2 or later, or Valkey";
                return Check::unknown(NAME, detail, remedy);
            }
            _ => {}
        }
        let mut parts = redis.split('.').map(|part| part.parse::<u64>().unwrap_or_default());
        let version = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if version < REDIS_MIN {
            let (major, minor) = REDIS_MIN;
            let detail = format!("Redis {redis}; it must be {major}.{minor} or later");
            return Check::failure(NAME, detail, "upgrade it");
        }
        if version.0 > REDIS_MAJOR_MAX {
            let detail = format!("Redis {redis}, later than any this agent was made for");
            return Check::unknown(NAME, detail, "look for a newer version of Tenure");
        }
        Check::ok(NAME, format!("Redis {redis}"))
    }

    /// One server, not a part of a Cluster and no Sentinel.
    fn topology(&self) -> Check {
        const NAME: &str = names::TOPOLOGY;
        let mode = self.text("redis_mode").or_else(|| self.text("server_mode"));
        if self.text("cluster_enabled") == Some("1") || mode == Some("cluster") {
            return Check::failure(
                NAME,
                "part of a Cluster: one grant changes keys of several slots, which it cannot do",
                "use a single Redis, or one with replicas behind Sentinel",
            );
        }
        match mode {
            Some("sentinel") => Check::failure(
                NAME,
                "a Sentinel, which keeps no data",
                "write the upstream as redis+sentinel://host:port/master-name",
            ),
            _ => Check::ok(NAME, "a single server, no Cluster"),
        }
    }

    /// Looks whether the server removes holds to make room. `policy` is what CONFIG says, for
    /// servers whose INFO does not.
    fn eviction(&self, policy: Option<&str>) -> Check {
        let policy = self.text("maxmemory_policy").or(policy);
        eviction(policy, self.number("maxmemory"))
    }

    fn memory(&self) -> Check {
        const NAME: &str = names::MEMORY;
        let (Some(used), Some(limit)) = (self.number("used_memory"), self.number("maxmemory"))
        else {
            let remedy = "compare used_memory with maxmemory by hand";
            return Check::unknown(NAME, "INFO does not say how much memory is used", remedy);
        };
        if limit == 0 {
            return Check::ok(NAME, format!("{} used, maxmemory sets no limit", mebibytes(used)));
        }
        let percent = used.saturating_mul(100) / limit;
        let detail = format!("{} of {} used ({percent} %)", mebibytes(used), mebibytes(limit));
        let remedy = "raise maxmemory, or remove what fills it: a full server refuses beats and \
                      grants";
        match percent {
            100.. => Check::failure(NAME, detail, remedy),
            NEARLY_PERCENT.. => Check::warning(NAME, detail, remedy),
            _ => Check::ok(NAME, detail),
        }
    }

    /// Looks whether it takes writes, and what a failover would do.
    fn replication(&self) -> Check {
        const NAME: &str = names::REPLICATION;
        if self.text("role") == Some("slave") {
            let master = match (self.text("master_host"), self.text("master_port")) {
                (Some(host), Some(port)) => format!("{host}:{port}"),
                _ => "another server".to_owned(),
            };
            return Check::failure(
                NAME,
                format!("a replica of {master}: it refuses every grant and beat"),
                format!("name {master} as the upstream, or use redis+sentinel:// to follow it"),
            );
        }
        let Some(replicas) = self.number("connected_slaves") else {
            let remedy = "look at INFO replication by hand";
            return Check::unknown(NAME, "INFO does not say whether there are replicas", remedy);
        };
        if replicas == 0 {
            let detail = "a master without replicas: there is no failover that loses a grant";
            return Check::ok(NAME, detail);
        }
        let detail = format!(
            "a master with {replicas} {}; they follow asynchronously, so a failover can lose a \
             grant that was just made",
            if replicas == 1 { "replica" } else { "replicas" }
        );
        // INFO has this field only where min-replicas-to-write is not 0.
        match self.number("min_slaves_good_slaves") {
            Some(good) => {
                Check::ok(NAME, format!("{detail}; min-replicas-to-write is met by {good}"))
            }
            None => Check::warning(
                NAME,
                format!(
                    "{detail}, and min-replicas-to-write is 0, so a master that was cut off goes \
                     on granting beside its successor"
                ),
                "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10, and let what is \
                 guarded check tokens",
            ),
        }
    }

    /// The data that a restart of the server would keep.
    fn persistence(&self) -> Check {
        const NAME: &str = names::PERSISTENCE;
        if self.text("loading") == Some("1") {
            let remedy = "wait until it has read its data";
            return Check::warning(NAME, "the server is loading its data", remedy);
        }
        if self.text("aof_last_write_status") == Some("err") {
            return Check::failure(
                NAME,
                "the append-only file cannot be written: the server refuses grants and beats",
                "look at the server's log and the space of its disk",
            );
        }
        if self.text("rdb_last_bgsave_status") == Some("err") {
            return Check::warning(
                NAME,
                "the last snapshot failed: with stop-writes-on-bgsave-error the server refuses \
                 grants and beats",
                "look at the server's log, the space of its disk and vm.overcommit_memory",
            );
        }
        match self.text("aof_enabled") {
            Some("1") => Check::ok(
                NAME,
                "append-only file on: a restart of the server keeps all but the latest moments",
            ),
            Some(_) => Check::warning(
                NAME,
                "append-only file off: a restart of the server forgets what came since its last snapshot, holds and \
                 keys of gateways; once an agent that knew of it notices (upstream_reset), nothing is granted for the \
                 longest ttl",
                "CONFIG SET appendonly yes, and the same in redis.conf, on a disk that outlives the server",
            ),
            None => {
                let remedy = "look at INFO persistence by hand";
                Check::unknown(NAME, "INFO does not say what a restart would keep", remedy)
            }
        }
    }

    fn clients(&self) -> Check {
        const NAME: &str = names::CLIENTS;
        let (Some(count), Some(limit)) =
            (self.number("connected_clients"), self.number("maxclients"))
        else {
            let remedy = "compare connected_clients with maxclients by hand";
            return Check::unknown(NAME, "INFO does not say how many clients there may be", remedy);
        };
        let detail = format!("{count} of {limit} connections used; an agent needs 4");
        if count.saturating_mul(100) < limit.saturating_mul(NEARLY_PERCENT) {
            return Check::ok(NAME, detail);
        }
        let remedy = "CONFIG SET maxclients to more, or find out with CLIENT LIST who has so many";
        Check::warning(NAME, detail, remedy)
    }
}

/// Looks whether the server removes holds to make room; `limit` is maxmemory, where it is known.
pub(super) fn eviction(policy: Option<&str>, limit: Option<u64>) -> Check {
    const NAME: &str = names::EVICTION;
    const REMEDY: &str = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf";
    match (policy, limit) {
        (Some("noeviction"), _) => {
            Check::ok(NAME, "maxmemory-policy is noeviction: no hold is removed to make room")
        }
        (Some(policy), Some(0)) => Check::warning(
            NAME,
            format!("maxmemory-policy is {policy}, which removes holds once maxmemory is set"),
            REMEDY,
        ),
        (Some(policy), _) => Check::failure(
            NAME,
            format!(
                "maxmemory-policy is {policy}: when memory is short the server removes holds, and \
                 others are granted them"
            ),
            REMEDY,
        ),
        (None, _) => Check::unknown(
            NAME,
            "neither INFO nor CONFIG says what maxmemory-policy is",
            "ask who runs the server: it must be noeviction; and let the agent's user see it with \
             +info",
        ),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use tenure_wire::Verdict;

    use super::*;

    #[track_caller]
    fn check(info: &str, name: &str, verdict: Verdict, says: &str) {
        let checks = Info::parse(&info.replace(' ', "\r\n")).checks(None);
        let found = checks.iter().find(|check| check.name == name).unwrap();
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.detail.contains(says), "{found:?}");
        assert_eq!(found.remedy.is_none(), verdict == Verdict::Ok, "{found:?}");
    }

    #[test]
    fn fields_are_found_between_headings_and_empty_lines() {
        let info = Info::parse("# Server\r\nredis_version:7.0.15\r\n\r\n# Clients\r\na:b:c\r\n");
        assert_eq!(info.text("redis_version"), Some("7.0.15"));
        assert_eq!(info.text("a"), Some("b:c"));
        assert_eq!(info.text("# Server"), None);
    }

    #[test]
    fn versions_and_flavours() {
        use Verdict::{Failure, Ok, Unknown};
        for (info, verdict, says) in [
            ("redis_version:7.0.15", Ok, "Redis 7.0.15"),
            ("redis_version:6.2.0", Ok, "Redis 6.2.0"),
            ("redis_version:8.2.1 server_name:redis", Ok, "Redis 8.2.1"),
            ("redis_version:6.0.16", Failure, "6.2 or later"),
            ("redis_version:5.0.14", Failure, "6.2 or later"),
            ("redis_version:9.0.0", Unknown, "later than any"),
            ("redis_version:7.2.4 server_name:valkey valkey_version:8.1.0", Ok, "Valkey 8.1.0"),
            ("redis_version:7.2.0 dragonfly_version:df-v1.30", Unknown, "Dragonfly"),
            ("redis_version:7.4.0 server_name:other", Unknown, "other"),
            ("", Unknown, "does not say"),
        ] {
            check(info, names::SERVER, verdict, says);
        }
    }

    #[test]
    fn only_a_single_server_will_do() {
        check("redis_mode:standalone cluster_enabled:0", names::TOPOLOGY, Verdict::Ok, "single");
        check("redis_mode:cluster", names::TOPOLOGY, Verdict::Failure, "Cluster");
        check("cluster_enabled:1", names::TOPOLOGY, Verdict::Failure, "Cluster");
        check("redis_mode:sentinel", names::TOPOLOGY, Verdict::Failure, "Sentinel");
        check("server_mode:sentinel", names::TOPOLOGY, Verdict::Failure, "Sentinel");
    }

    #[test]
    fn a_server_that_evicts_is_no_upstream() {
        use Verdict::{Failure, Ok, Unknown, Warning};
        for (info, verdict) in [
            ("maxmemory_policy:noeviction maxmemory:100", Ok),
            ("maxmemory_policy:volatile-lru maxmemory:100", Failure),
            ("maxmemory_policy:allkeys-lru", Failure),
            ("maxmemory_policy:volatile-ttl maxmemory:0", Warning),
            ("", Unknown),
        ] {
            check(info, names::EVICTION, verdict, "maxmemory-policy");
        }
        let by_config = &Info::default().checks(Some("noeviction"))[2];
        assert_eq!((&*by_config.name, by_config.verdict), (names::EVICTION, Ok));
    }

    #[test]
    fn limits_that_are_nearly_reached() {
        use Verdict::{Failure, Ok, Unknown, Warning};
        for (used, limit, verdict) in
            [(10, 0, Ok), (89, 100, Ok), (90, 100, Warning), (100, 100, Failure)]
        {
            let info = format!("used_memory:{used} maxmemory:{limit}");
            check(&info, names::MEMORY, verdict, "used");
        }
        check("", names::MEMORY, Unknown, "INFO");
        check("connected_clients:5 maxclients:100", names::CLIENTS, Ok, "5 of 100");
        check("connected_clients:95 maxclients:100", names::CLIENTS, Warning, "95 of 100");
        check("", names::CLIENTS, Unknown, "INFO");
    }

    #[test]
    fn replicas_can_lose_a_grant() {
        use Verdict::{Failure, Ok, Unknown, Warning};
        let replica = "role:slave master_host:10.0.0.1 master_port:6379";
        check(replica, names::REPLICATION, Failure, "replica of 10.0.0.1:6379");
        check("role:slave", names::REPLICATION, Failure, "another server");
        check("role:master connected_slaves:0", names::REPLICATION, Ok, "without replicas");
        let careless = "role:master connected_slaves:1";
        check(careless, names::REPLICATION, Warning, "with 1 replica; they follow asynchronously");
        let careful = "role:master connected_slaves:2 min_slaves_good_slaves:2";
        check(careful, names::REPLICATION, Ok, "with 2 replicas");
        check("role:master", names::REPLICATION, Unknown, "INFO");
    }

    #[test]
    fn what_a_restart_keeps() {
        use Verdict::{Failure, Ok, Unknown, Warning};
        for (info, verdict, says) in [
            ("aof_enabled:1", Ok, "on"),
            ("aof_enabled:0", Warning, "upstream_reset"),
            ("aof_enabled:0 loading:1", Warning, "loading"),
            ("aof_enabled:1 aof_last_write_status:err", Failure, "refuses"),
            ("aof_enabled:0 rdb_last_bgsave_status:err", Warning, "snapshot failed"),
            ("", Unknown, "INFO"),
        ] {
            check(info, names::PERSISTENCE, verdict, says);
        }
    }
}

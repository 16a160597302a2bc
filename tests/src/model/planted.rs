//! Faults put into the scripts on purpose, to prove that the test notices.

use std::fmt;
use std::str::FromStr;

/// A mistake in the scripts, of the kind that this test is there to catch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// The last token is not stored.
    TokenNotStored,
    /// An ended claim leaves no mark.
    NoMark,
    /// A mark of how a claim ended gives way to a later one.
    MarkReplaced,
    /// A claim that ran out counts as taken away.
    NeverExpired,
    /// A role is released by whoever asks.
    ReleasedByAnyone,
    /// A beat keeps a claim's record and not its role.
    BeatNotKept,
    /// A refused claim leaves its record.
    RefusalWrites,
    /// In its grace a lease is anybody's.
    NoGrace,
    /// A change of the routing table is no new version of it.
    SameVersion,
    /// A master preempts one of the same priority.
    EqualPreempts,
    /// A preempted master is not told.
    PreemptedUntold,
    /// A session stays in its project's set when it ends.
    SessionListed,
    /// A released permit stays with its holder.
    PermitKept,
    /// A released permit is given to nobody.
    NoHandover,
    /// The last waiter is the first.
    LastFirst,
    /// A waiter whose time is up stays in the queue.
    DeadWaiters,
    /// The limit stays when the last user has gone.
    LimitStays,
    /// Permits are lost and nobody is told.
    RevokedUntold,
}

/// Where a fault goes, and what it replaces.
struct Place {
    /// Only in this script; `None` for what several share.
    script: Option<&'static str>,
    right: &'static str,
    wrong: &'static str,
}

impl Planted {
    /// All of them, in the order of the table.
    pub const ALL: [Planted; 18] = [
        Planted::TokenNotStored,
        Planted::NoMark,
        Planted::MarkReplaced,
        Planted::NeverExpired,
        Planted::ReleasedByAnyone,
        Planted::BeatNotKept,
        Planted::RefusalWrites,
        Planted::NoGrace,
        Planted::SameVersion,
        Planted::EqualPreempts,
        Planted::PreemptedUntold,
        Planted::SessionListed,
        Planted::PermitKept,
        Planted::NoHandover,
        Planted::LastFirst,
        Planted::DeadWaiters,
        Planted::LimitStays,
        Planted::RevokedUntold,
    ];

    /// Its name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Planted::TokenNotStored => "token-not-stored",
            Planted::NoMark => "no-mark",
            Planted::MarkReplaced => "mark-replaced",
            Planted::NeverExpired => "never-expired",
            Planted::ReleasedByAnyone => "released-by-anyone",
            Planted::BeatNotKept => "beat-not-kept",
            Planted::RefusalWrites => "refusal-writes",
            Planted::NoGrace => "no-grace",
            Planted::SameVersion => "same-version",
            Planted::EqualPreempts => "equal-preempts",
            Planted::PreemptedUntold => "preempted-untold",
            Planted::SessionListed => "session-listed",
            Planted::PermitKept => "permit-kept",
            Planted::NoHandover => "no-handover",
            Planted::LastFirst => "last-first",
            Planted::DeadWaiters => "dead-waiters",
            Planted::LimitStays => "limit-stays",
            Planted::RevokedUntold => "revoked-untold",
        }
    }

    const fn place(self) -> Place {
        let (script, right, wrong) = match self {
            Planted::TokenNotStored => (None, "redis.call('SET', fence, whole(token))", ""),
            Planted::NoMark => (None, "redis.call('HSET', key, 'gone', reason)", ""),
            Planted::MarkReplaced => (None, "    reason = record.gone\n", ""),
            Planted::NeverExpired => {
                (None, "if redis.call('PTTL', record.key) <= KEEP then", "if nil then")
            }
            Planted::ReleasedByAnyone => {
                (Some("release_leader"), "redis.call('GET', main) == id", "redis.call('GET', main)")
            }
            Planted::BeatNotKept => {
                (Some("renew"), "redis.call('PEXPIREAT', main, from_now(ttl))", "")
            }
            Planted::RefusalWrites => (
                Some("claim_leader"),
                "return { 'contended'",
                "write_record(key, record, claim) return { 'contended'",
            ),
            Planted::NoGrace => {
                (Some("claim_lease"), "not (own and lease.in_grace)", "not lease.in_grace")
            }
            Planted::SameVersion => {
                (None, "redis.call('INCR', routes)", "(redis.call('GET', routes) or 0)")
            }
            Planted::EqualPreempts => (Some("claim_master"), "priority <=", "priority <"),
            Planted::PreemptedUntold => {
                (Some("claim_master"), "tell_preempted(session_channels", "type(session_channels")
            }
            Planted::SessionListed => (
                Some("end_session"),
                "listed = redis.call('SREM'",
                "listed = redis.call('SISMEMBER'",
            ),
            Planted::PermitKept => {
                (Some("release_permit"), "redis.call('ZREM', s.main, member) +", "")
            }
            Planted::NoHandover => (Some("release_permit"), "grant_heads(s, limit_of(s))", ""),
            Planted::LastFirst => (None, "'ZPOPMIN'", "'ZPOPMAX'"),
            Planted::DeadWaiters => (None, "redis.call('ZREM', s.waiting, member)", ""),
            Planted::LimitStays => {
                (None, "redis.call('DEL', s.max, s.ttl", "redis.call('DEL', s.ttl")
            }
            Planted::RevokedUntold => {
                (Some("revoke_permits"), "redis.call('PUBLISH', lost", "type(lost")
            }
        };
        Place { script, right, wrong }
    }

    /// The text of a script, with the fault in it if that is its place.
    pub(super) fn plant(self, name: &str, source: &str) -> String {
        let Place { script, right, wrong } = self.place();
        match script.is_none_or(|script| script == name) {
            true => source.replacen(right, wrong, 1),
            false => source.to_owned(),
        }
    }
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Planted {
    type Err = String;

    fn from_str(text: &str) -> Result<Planted, String> {
        Planted::ALL.into_iter().find(|planted| planted.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Planted::ALL.iter().map(|planted| planted.as_str()).collect();
            format!("{text:?} is not a planted fault: use one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_place() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/stores/src/redis/scripts");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
        let sources: Vec<(String, String)> = files
            .map(|file| {
                let name = file.file_name().into_string().unwrap();
                (name, std::fs::read_to_string(file.path()).unwrap())
            })
            .collect();
        for planted in Planted::ALL {
            let Place { script, right, .. } = planted.place();
            let of = |name: &str| match script {
                // The first place in its text, which begins with what it shares with others.
                Some(script) => name == format!("{script}.lua") || name.starts_with("prelude"),
                None => name.starts_with("prelude"),
            };
            let found = sources.iter().filter(|(name, source)| of(name) && source.contains(right));
            assert_eq!(found.count(), 1, "{planted}: where is {right:?}?");
        }
    }
}

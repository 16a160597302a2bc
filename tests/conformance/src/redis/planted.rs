//! Faults put into the scripts on purpose, to prove that the corpus notices.

/// A mistake in the scripts, of the kind that the corpus is there to catch.
pub(super) struct Fault {
    name: &'static str,
    /// Only in this script; `None` for a text that several share.
    script: Option<&'static str>,
    right: &'static str,
    wrong: &'static str,
}

/// All of them, in the order of the table.
const FAULTS: [Fault; 37] = [
    // The last token is not stored.
    fault(
        "token-not-stored",
        None,
        "redis.call('SET', fence, token, 'GET')",
        "redis.call('GET', fence)",
    ),
    // An ended claim leaves no mark.
    fault("no-mark", None, "redis.call('HSET', key, 'gone', reason)", ""),
    // A mark of how a claim ended gives way to a later one.
    fault("mark-replaced", None, "    reason = record.gone\n", ""),
    // A claim that ran out counts as taken away.
    fault("never-expired", None, "if redis.call('PTTL', record.key) <= KEEP then", "if nil then"),
    // A role is released by whoever asks.
    fault(
        "released-by-anyone",
        Some("release_leader"),
        "redis.call('GET', main) == id",
        "redis.call('GET', main)",
    ),
    // A beat keeps a claim's record and not its role.
    fault("beat-not-kept", Some("renew"), "redis.call('PEXPIREAT', main, from_now(ttl))", ""),
    // A steady beat keeps the record of a leader, and not its key.
    fault("steady-not-kept", Some("renew"), "call('PEXPIREAT', ARGV[i], ends)", ""),
    // A steady beat goes by the record of a claim alone.
    fault("steady-unseen", Some("renew"), "holders[i - a] == ARGV[i + 2 * n] and ", ""),
    // A refused claim leaves its record.
    fault(
        "refusal-writes",
        Some("claim_leader"),
        "return { 'contended'",
        "write_record(key, record, claim) return { 'contended'",
    ),
    // In its grace a lease is anybody's.
    fault("no-grace", Some("claim_lease"), "not (own and lease.in_grace)", "not lease.in_grace"),
    // A change of the routing table is no new version of it.
    fault("same-version", None, "redis.call('INCR', routes)", "(redis.call('GET', routes) or 0)"),
    // A master preempts one of the same priority.
    fault("equal-preempts", Some("claim_master"), "priority > (held", "priority >= (held"),
    // A preempted master is not told.
    fault(
        "preempted-untold",
        Some("claim_master"),
        "tell_preempted(q.session_channels",
        "type(q.session_channels",
    ),
    // A session stays in its project's set when it ends.
    fault(
        "session-listed",
        Some("end_session"),
        "listed = redis.call('SREM'",
        "listed = redis.call('SISMEMBER'",
    ),
    // A session that has ended is brought back by a late copy of its announcement.
    fault("session-returns", Some("announce"), "if redis.call('EXISTS', KEYS[4]) == 1", "if nil"),
    // A released permit stays with its holder.
    fault("permit-kept", Some("release_permit"), "redis.call('ZREM', s.main, member) +", ""),
    // A released permit is given to nobody.
    fault("no-handover", Some("release_permit"), "grant_heads(s, limit_of(s))", ""),
    // The last waiter is the first.
    fault("last-first", None, "'ZPOPMIN'", "'ZPOPMAX'"),
    // A waiter whose time is up stays in the queue.
    fault("dead-waiters", None, "take_out(s.hb, s.waiting, s.hb)", ""),
    // Whoever asked last for a role, a master or a lease is the first.
    fault("queue-reversed", None, "'%016x', at)", "'%016x', 2 ^ 52 - at)"),
    // A waiter for one of them whose time is up is granted it.
    fault("dead-granted", None, "    leave_queue(q, dead)\n", ""),
    // What is held is granted to whoever waits.
    fault("granted-twice", None, "return left > 0 or left == -1", "return false"),
    // A released role is given to nobody.
    fault("role-kept", Some("release_leader"), "look_leader(q)\nreturn had", "return had"),
    // A waiter that is granted and does not know it keeps others out for its whole ttl.
    fault("kept-unconfirmed", None, "math.min(record.ttl, UNCONFIRMED)", "record.ttl"),
    // A waiter's agent is not told of its grant: the publication is lost.
    fault("grant-untold", None, "redis.call('PUBLISH', record.agent, table", "type(table"),
    // It is told another token than that of its grant …
    fault(
        "grant-of-another",
        None,
        "local told = { claim, whole(token)",
        "local told = { claim, whole(token - 1)",
    ),
    // … or that it is kept for longer.
    fault("grant-overstated", None, "whole(now_ms), whole(ttl)", "whole(now_ms), whole(ttl + 1)"),
    // A waiter for a permit whose time is up is granted it.
    fault(
        "dead-permits",
        None,
        "take_out(s.hb, s.waiting, s.hb)\nend",
        "for _, member in ipairs(redis.call('ZRANGEBYSCORE', s.hb, '-inf', score(now_s))) do
           local dead = record_of(s, member)
           if dead then
             keep_record(dead.key, 60000)
             redis.call('ZADD', s.hb, score(now_s + 60), member)
           end
         end end",
    ),
    // Whoever looks after a role grants it, though the releaser has done so.
    fault("role-granted-twice", Some("renew"), "if is_taken(q) then", "if false then"),
    // Whoever looks after a semaphore does not see what the releaser has granted.
    fault(
        "permit-granted-twice",
        Some("care"),
        "local free = limit - redis.call('ZCARD', s.main)",
        "local free = limit",
    ),
    // Masters wait in the order of asking, whatever their priority.
    fault("priority-forgotten", None, "2147483647 - priority", "2147483647"),
    // A lease in its grace goes to whoever waits first.
    fault("grace-overrun", None, "lease and lease.session)", "nil)"),
    // The limit stays when the last user has gone.
    fault("limit-stays", None, "redis.call('DEL', s.max, s.ttl", "redis.call('DEL', s.ttl"),
    // Whoever lost a grant is not told why.
    fault("unexplained", None, "redis.call('HSET', key, 'words', words)", ""),
    // A history that is full loses its newest change.
    fault("history-loses-newest", Some("record"), "'ZRANGE', key, 0, s", "'ZREVRANGE', key, 0, s"),
    // A change that is told twice happened when it was told last.
    fault("history-moves", Some("record"), "key, 'NX', at", "key, at"),
    // Permits are lost and nobody is told.
    fault("revoked-untold", Some("revoke_permits"), "tell_lost(record, hold_of(member))", ""),
];

/// Their names on the command line.
pub(super) static NAMES: [&str; FAULTS.len()] = {
    let mut names = [""; FAULTS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = FAULTS[at].name;
        at += 1;
    }
    names
};

const fn fault(
    name: &'static str,
    script: Option<&'static str>,
    right: &'static str,
    wrong: &'static str,
) -> Fault {
    Fault { name, script, right, wrong }
}

/// The fault of a name.
pub(super) fn named(name: &str) -> Option<Fault> {
    FAULTS.into_iter().find(|fault| fault.name == name)
}

impl Fault {
    /// The text of a script, with the fault in it if that is its place.
    pub(super) fn plant(&self, name: &str, source: &str) -> String {
        match self.script.is_none_or(|script| script == name) {
            true => source.replacen(self.right, self.wrong, 1),
            false => source.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_place() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../agent/stores/src/redis/scripts");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
        let sources: Vec<(String, String)> = files
            .map(|file| {
                let name = file.file_name().into_string().unwrap();
                (name, std::fs::read_to_string(file.path()).unwrap())
            })
            .collect();
        for Fault { name: fault, script, right, .. } in FAULTS {
            let is_shared = |name: &str| name == "start.lua" || name.starts_with("prelude");
            let of = |name: &str| match script {
                // The first place in its text, which begins with what it shares with others.
                Some(script) => name == format!("{script}.lua") || is_shared(name),
                None => is_shared(name),
            };
            let found = sources.iter().filter(|(name, source)| of(name) && source.contains(right));
            assert_eq!(found.count(), 1, "{fault}: where is {right:?}?");
        }
    }
}

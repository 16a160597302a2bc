//! Faults put into the SQL on purpose, to prove that the corpus notices.

/// A mistake in the SQL, of the kind that the corpus is there to catch.
struct Fault {
    name: &'static str,
    right: &'static str,
    wrong: &'static str,
}

/// All of them, in the order of the files.
const FAULTS: [Fault; 31] = [
    // Every grant has the same token.
    fault("token-repeated", "v_token bigint := nextval('tenure.token');", "v_token bigint := 7;"),
    // An ended claim leaves no mark.
    fault(
        "no-mark",
        "values (p_claim, p_reason, p_words, t + 60000000)",
        "values (p_claim, p_reason, p_words, t)",
    ),
    // A mark of how a claim ended gives way to a later one.
    fault("mark-replaced", "m.reason <> 'Expired' then m.reason", "false then m.reason"),
    // A waiter that was thought dead never waits again.
    fault("expired-for-good", "if v_reason <> 'Expired' then", "if v_reason is not null then"),
    // Beats in a batch keep nothing.
    fault(
        "batch-not-kept",
        "set until = greatest(c.until, t + l.ttl), unc",
        "set until = c.until, unc",
    ),
    // A repeated claim keeps nothing.
    fault("beat-not-kept", "until = greatest(until, t + p_ttl), due", "until = until, due"),
    // Who waits is told a place as if nobody else had beaten.
    fault(
        "place-miscounted",
        "and w.place > case when n.above = n.priority then n.above_place else 0 end",
        "",
    ),
    // A beat with a shorter ttl ends a grant sooner.
    fault("beat-shortens", "greatest(c.until, t + l.ttl)", "t + l.ttl"),
    // A claim that comes out of its grace is looked at when that would have ended.
    fault("due-late", "due = least(due, greatest(until, t + p_ttl)),", ""),
    // A beat in a batch counts for a claim of another resource.
    fault("conflict-unseen", "and b.tenant = r.tenant and b.kind = r.kind and b.name = r.name", ""),
    // A lease has no grace.
    fault(
        "no-grace",
        "coalesce(c.unconfirmed_until, c.until + c.grace)",
        "coalesce(c.unconfirmed_until, c.until)",
    ),
    // In its grace a lease is anybody's.
    fault(
        "grace-of-anybody",
        "h.grace_until is not null and h.session = p_session",
        "h.grace_until is not null",
    ),
    // A beat does not end the grace.
    fault(
        "grace-stays",
        "unconfirmed_until = null, grace_until = null",
        "unconfirmed_until = null",
    ),
    // A change of the routing table is no new version of it.
    fault("same-version", "set version = r.version + 1", "set version = r.version"),
    // A repeated claim does not change what the routing table says.
    fault(
        "attributes-kept",
        "set attributes = p_attributes where",
        "set attributes = attributes where",
    ),
    // A master preempts one of the same priority.
    fault("equal-preempts", "p_priority > h.priority and", "p_priority >= h.priority and"),
    // A master preempts nobody.
    fault("never-preempts", "p_priority > h.priority and", "false and"),
    // A session stays when it ends.
    fault("session-stays", "set ended = true, until = t + 60000000", "set until = until"),
    // A session that was ended is brought back by a late announcement.
    fault("session-returns", "if s.ended and s.until > t then", "if false then"),
    // A release releases nothing.
    fault("permit-kept", "v_steps := tenure.end_claim(r, c, 'Released', null, t, v_steps);", ""),
    // What is free is granted to nobody who waits.
    fault("no-handover", "v_left := tenure.grant_heads(r, t, p_steps);", "v_left := p_steps;"),
    // The last waiter is the first.
    fault(
        "last-first",
        "order by priority desc, place limit 1 for update;\n        exit when not found;\n        h",
        "order by priority desc, place desc limit 1 for update;\n        exit when not found;\n        h",
    ),
    // A waiter whose time is up is granted.
    fault("dead-granted", "if w.until <= t then", "if false then"),
    // A claim does not change a limit.
    fault("limit-kept", "elsif p_keeps is not true and r.permits", "elsif false and r.permits"),
    // A claim that keeps the limit changes it.
    fault("limit-taken", "elsif p_keeps is not true and r.permits", "elsif r.permits"),
    // A semaphore grants one more than its limit.
    fault(
        "one-too-many",
        "count(*) < coalesce(r.permits, 1)",
        "count(*) <= coalesce(r.permits, 1)",
    ),
    // A grant that nobody confirms is kept for a whole ttl.
    fault("kept-for-long", "v_until := t + least(w.ttl, 5000000);", "v_until := t + w.ttl;"),
    // A revocation's words are lost.
    fault("revoked-unsaid", "'Revoked', p_words, t", "'Revoked', null, t"),
    // To revoke one grant revokes all.
    fault("revokes-all", "(p_token is null or h.token = p_token)", "true"),
    // A change that is told twice is kept twice.
    fault(
        "history-twice",
        "continue when exists (select from tenure.history h",
        "continue when false and exists (select from tenure.history h",
    ),
    // A history has no bound.
    fault("history-without-end", "desc offset 50", "desc offset 5000"),
];

const fn fault(name: &'static str, right: &'static str, wrong: &'static str) -> Fault {
    Fault { name, right, wrong }
}

/// Their names.
pub(super) const NAMES: [&str; FAULTS.len()] = {
    let mut names = [""; FAULTS.len()];
    let mut at = 0;
    while at < FAULTS.len() {
        names[at] = FAULTS[at].name;
        at += 1;
    }
    names
};

/// The SQL with that fault in it.
pub(super) fn planted(sql: String, name: Option<&str>) -> String {
    let Some(name) = name else { return sql };
    let fault = FAULTS.iter().find(|fault| fault.name == name).expect("a fault of the list");
    assert_eq!(sql.matches(fault.right).count(), 1, "{name} is planted at one place");
    sql.replace(fault.right, fault.wrong)
}

//! Owners of other principals, hidden from callers without the right to see them.

use serde_json::Value;
use sha2::{Digest, Sha256};
use tenure_core::model::{
    Answer, ClaimAnswer, ClaimId, HistoryEntry, Holder, Members, Owner, SessionId, StandingEntry,
    UpstreamStanding,
};
use tenure_stores::gateway::scope::Mark;
use tenure_stores::gateway::wire::News;
use tenure_wire::ANOTHER_PRINCIPAL;
use uuid::Uuid;

/// The host of one that is hidden. Empty it would be taken for one that is not known.
const HOST: &str = "-";
/// Bytes of the number by which a hidden session is the same in all answers.
const PSEUDONYM_BYTES: usize = 8;

/// Hides session, host, name and claim of all others in an answer to the principal with this mark. What they hold, since
/// when, and in which order they wait is told.
pub(super) fn hide(mark: Mark, answer: &mut Answer) {
    match answer {
        Answer::Claim(ClaimAnswer::Contended { holder: Some(holder), .. }) => {
            hide_entry(mark, holder);
        }
        Answer::Standing(standing) => hide_standing(mark, standing),
        Answer::Members(Some(members)) => hide_members(mark, members),
        Answer::History(entries) => entries.iter_mut().for_each(|entry| hide_change(mark, entry)),
        _ => {}
    }
}

/// The same in a standing. Of a project's sessions only the names are in it, and whose they are is not known.
pub(super) fn hide_standing(mark: Mark, standing: &mut UpstreamStanding) {
    let UpstreamStanding { holders, waiters, sessions, .. } = standing;
    holders.iter_mut().chain(waiters).for_each(|entry| hide_entry(mark, entry));
    sessions.clear();
}

fn hide_entry(mark: Mark, StandingEntry { claim, owner, .. }: &mut StandingEntry) {
    if !mark.is_of(claim.0) {
        *claim = ClaimId(Uuid::nil());
        *owner = hidden(owner.session);
    }
}

fn hide_change(mark: Mark, entry: &mut HistoryEntry) {
    if !mark.is_of(entry.claim.0) {
        entry.claim = ClaimId(Uuid::nil());
        entry.owner = hidden(entry.owner.session);
        entry.holder = Holder::default();
        (entry.end.detail, entry.end.by) = (None, None);
    }
}

fn hide_members(mark: Mark, members: &mut Members) {
    if let Some(master) = members.master.as_mut().filter(|id| !is_own(mark, id)) {
        *master = pseudonym(master).into();
        members.master_claim = None;
    }
    for member in members.sessions.iter_mut().filter(|it| !is_own(mark, &it.session)) {
        member.session = pseudonym(&member.session).into();
        member.name = ANOTHER_PRINCIPAL.into();
        member.host = HOST.into();
    }
}

/// Hides the sessions that a message of the store is about, the one that took its place too, if they are of another
/// principal.
pub(super) fn hide_message(mark: Mark, payload: &mut Value) {
    hide_session(mark, payload);
    if let Some(by) = payload.get_mut("by") {
        hide_session(mark, by);
    }
}

fn hide_session(mark: Mark, of: &mut Value) {
    let Some(fields) = of.as_object_mut() else { return };
    let session = fields.get("session").and_then(Value::as_str);
    let Some(session) = session.filter(|id| !is_own(mark, id)).map(pseudonym) else { return };
    for (field, shown) in
        [("session", session.as_str()), ("name", ANOTHER_PRINCIPAL), ("host", HOST)]
    {
        if let Some(value) = fields.get_mut(field) {
            *value = shown.into();
        }
    }
}

/// What every line of a change stream has that tells of a message. Names in other lines may have it, too.
const MESSAGE: &[u8] = b"\"message\"";

/// The line of a change stream, with the session of a message hidden; `None` if it tells of none.
pub(super) fn hide_news(mark: Mark, line: &[u8]) -> Option<Vec<u8>> {
    // A principal may have a thousand streams: most lines are not read anew for each.
    if !line.windows(MESSAGE.len()).any(|part| part == MESSAGE) {
        return None;
    }
    let mut news = News::read(line.trim_ascii_end())?;
    let News::Message { payload, .. } = &mut news else { return None };
    hide_message(mark, payload);
    news.line().ok()
}

fn is_own(mark: Mark, session: &str) -> bool {
    session.parse().is_ok_and(|id| mark.is_of(id))
}

/// An owner whose session is another one, the same everywhere, so that readers can tell it from others.
fn hidden(session: SessionId) -> Owner {
    let mut bytes = [0; 16];
    let hash = hash_of(&session.to_string());
    bytes.iter_mut().zip(hash.into_iter().take(PSEUDONYM_BYTES)).for_each(|(to, from)| *to = from);
    let session = SessionId(Uuid::from_bytes(bytes));
    Owner { session, host: HOST.into(), name: ANOTHER_PRINCIPAL.into() }
}

/// A name for a session that is the same everywhere, and no id.
fn pseudonym(session: &str) -> String {
    let digits = hash_of(session).into_iter().take(PSEUDONYM_BYTES);
    format!("hidden-{}", digits.map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn hash_of(session: &str) -> [u8; 32] {
    Sha256::new().chain_update("tenure session\0").chain_update(session).finalize().into()
}

#[cfg(test)]
mod tests {
    use tenure_core::model::Member;

    use super::*;

    fn member(session: &str) -> Member {
        Member {
            session: session.into(),
            name: "n".into(),
            surface: "s".into(),
            host: "h".into(),
            registered_at: None,
            runs_out: None,
        }
    }

    #[test]
    fn others_are_told_apart_and_not_known() {
        let (mark, other) = (Mark::of("alpha"), Mark::of("beta"));
        let own = mark.scoped(Uuid::from_u128(1 << 100)).to_string();
        let others = [1, 2].map(|id| other.scoped(Uuid::from_u128(id << 100)).to_string());
        let ids = [&own, &others[0], &others[1], &"odd".to_owned()];
        let members = Members {
            tenant: "t".into(),
            project: "p".into(),
            master: Some(others[1].as_str().into()),
            master_claim: Some(ClaimId(other.scoped(Uuid::nil()))),
            sessions: ids.iter().map(|id| member(id)).collect(),
            next: None,
        };
        let mut answer = Answer::Members(Some(members.clone()));
        hide(mark, &mut answer);
        let Answer::Members(Some(hidden)) = answer else { panic!("members") };
        assert_eq!(hidden.sessions[0], members.sessions[0]);
        assert_eq!(hidden.master_claim, None);
        let shown: Vec<bool> =
            hidden.sessions.iter().map(|it| hidden.is_master(&it.session)).collect();
        assert_eq!(shown, [false, false, true, false]);
        for (member, id) in hidden.sessions.iter().zip(ids).skip(1) {
            assert_ne!(*member.session, **id);
            assert!(member.session.parse::<Uuid>().is_err());
            assert_eq!((&*member.name, &*member.host), (ANOTHER_PRINCIPAL, HOST));
        }
        let mut answer =
            Answer::Members(Some(Members { master: Some(own.as_str().into()), ..members }));
        hide(mark, &mut answer);
        assert!(
            matches!(answer, Answer::Members(Some(it)) if it.is_master(&own) && it.master_claim.is_some())
        );
    }

    #[test]
    fn a_message_about_another_session_names_nobody_and_one_of_a_program_is_as_it_was() {
        let (mark, other) = (Mark::of("alpha"), Mark::of("beta"));
        let message = |session: String| serde_json::json!({"type": "session_ended", "session": session, "name": "n", "host": "h"});
        let own = message(mark.scoped(Uuid::nil()).to_string());
        let free = serde_json::json!({"type": "hello", "name": "n"});
        for same in [own, free, Value::Null] {
            let mut shown = same.clone();
            hide_message(mark, &mut shown);
            assert_eq!(shown, same);
        }
        let mut hidden = message(other.scoped(Uuid::nil()).to_string());
        hide_message(mark, &mut hidden);
        assert_eq!((&hidden["name"], &hidden["host"]), (&ANOTHER_PRINCIPAL.into(), &HOST.into()));
        assert!(hidden["session"].as_str().unwrap().starts_with("hidden-"));
        let message = News::Message {
            tenant: "t".into(),
            project: "p".into(),
            session: None,
            payload: message(other.scoped(Uuid::nil()).to_string()),
        };
        let line = hide_news(mark, &message.line().unwrap()).unwrap();
        assert!(String::from_utf8(line).unwrap().contains(ANOTHER_PRINCIPAL));
        assert_eq!(hide_news(mark, &News::FeedLost.line().unwrap()), None);
    }
}

//! Pure. Whom news concern.
//!
//! Whoever asked about a resource is told of its next change, once, and asks again if it wants to know still: a
//! change costs no more events than there were questions, however many streams are open.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{Request, Resource, Subject};
use tenure_core::time::Boottime;
use tenure_stores::gateway::scope::Mark;
use tenure_stores::gateway::wire::News;

/// Questions that are remembered. Before one more everybody is made to ask anew.
const QUESTIONS_MAX: usize = 65_536;
/// A session that nobody renews is remembered for so many ttls.
const REMEMBERED_TTLS: u32 = 3;
/// Members are looked through when there are so many more than twice those of the last time.
const SWEEP_ABOVE: usize = 1024;

/// Those whom news concern.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum To {
    /// All streams here, and the principals that asked something of this gateway.
    Everybody(Vec<Mark>),
    These(Vec<Mark>),
}

/// What principals asked for.
#[derive(Debug, Default)]
pub(super) struct Addressees {
    asked: HashMap<Resource, Vec<Mark>>,
    questions: usize,
    /// By tenant and project: who has a session in it, and until when that is remembered.
    members: HashMap<(Arc<str>, Arc<str>), HashMap<Mark, Boottime>>,
    joined: usize,
    sweep_above: usize,
}

impl Addressees {
    /// A request is about to be made. False if there are too many questions for that: everybody must be told of
    /// [`News::Reset`] before.
    #[must_use]
    pub(super) fn handle_request(&mut self, now: Boottime, mark: Mark, request: &Request) -> bool {
        match request {
            Request::Inspect(resource) | Request::Holders(resource) => {
                return self.ask(mark, resource);
            }
            // Agents tell each other nothing.
            Request::Announce(record) if record.is_agent() => {}
            Request::Announce(record) => self.join(now, mark, &record.master(), record.ttl),
            Request::Renew(beats) => {
                for beat in beats {
                    if let Subject::Session { master, .. } = &beat.subject {
                        self.join(now, mark, master, beat.ttl);
                    }
                }
            }
            _ => {}
        }
        true
    }

    /// The next change of a resource concerns a principal. False as with [`Addressees::handle_request`].
    #[must_use]
    pub(super) fn ask(&mut self, mark: Mark, resource: &Resource) -> bool {
        if self.questions >= QUESTIONS_MAX {
            return false;
        }
        let marks = self.asked.entry(resource.clone()).or_default();
        if !marks.contains(&mark) {
            marks.push(mark);
            self.questions += 1;
        }
        true
    }

    /// Forgets all questions; whose they were.
    fn forget(&mut self) -> Vec<Mark> {
        self.questions = 0;
        let marks: HashSet<_> = self.asked.drain().flat_map(|(_, marks)| marks).collect();
        marks.into_iter().collect()
    }

    fn join(&mut self, now: Boottime, mark: Mark, master: &Resource, ttl: Duration) {
        let key = (Arc::clone(&master.tenant), Arc::clone(&master.name));
        let until = now + ttl * REMEMBERED_TTLS;
        let members = self.members.entry(key).or_default();
        match members.get_mut(&mark) {
            Some(known) => *known = (*known).max(until),
            None => {
                members.insert(mark, until);
                self.joined += 1;
            }
        }
        if self.joined > self.sweep_above + SWEEP_ABOVE {
            self.members.retain(|_, members| {
                members.retain(|_, until| *until > now);
                !members.is_empty()
            });
            self.joined = self.members.values().map(HashMap::len).sum();
            self.sweep_above = self.joined * 2;
        }
    }

    /// Those whom news of the store concern.
    pub(super) fn of(&mut self, now: Boottime, news: &News) -> To {
        To::These(match news {
            News::Granted { claim, .. } | News::Lost { claim } => vec![Mark::at_end_of(claim.0)],
            News::Message { session: Some(session), .. } => vec![Mark::at_end_of(session.0)],
            News::Message { tenant, project, session: None, .. } => {
                let members = self.members.get(&(Arc::clone(tenant), Arc::clone(project)));
                let members = members.into_iter().flatten();
                members.filter(|(_, until)| **until > now).map(|(mark, _)| *mark).collect()
            }
            News::Resource(resource) => {
                let asked = self.asked.remove(resource).unwrap_or_default();
                self.questions -= asked.len();
                asked
            }
            News::FeedLost | News::Reset => return To::Everybody(self.forget()),
            // Other gateways know themselves how the store does.
            News::Store(_) => return To::Everybody(Vec::new()),
        })
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::model::{Beat, SessionId};
    use tenure_wire::Kind;
    use uuid::Uuid;

    use super::*;

    const NOW: Boottime = Boottime::from_nanos(1_000_000_000);
    const TTL: Duration = Duration::from_secs(10);

    fn resource(kind: Kind, name: &str) -> Resource {
        Resource { tenant: "t".into(), kind, name: name.into() }
    }

    #[test]
    fn whoever_asks_is_told_of_the_next_change_once() {
        let (alpha, beta) = (Mark::of("alpha"), Mark::of("beta"));
        let mut addressees = Addressees::default();
        let role = resource(Kind::Leader, "x");
        let news = News::Resource(role.clone());
        assert_eq!(addressees.of(NOW, &news), To::These(vec![]));
        for mark in [alpha, beta, alpha] {
            assert!(addressees.handle_request(NOW, mark, &Request::Inspect(role.clone())));
        }
        assert_eq!(addressees.of(NOW, &news), To::These(vec![alpha, beta]));
        assert_eq!(addressees.of(NOW, &news), To::These(vec![]));
        assert_eq!(addressees.questions, 0);
        assert!(addressees.ask(beta, &role));
        assert_eq!(addressees.of(NOW, &News::FeedLost), To::Everybody(vec![beta]));
        assert_eq!(addressees.of(NOW, &news), To::These(vec![]));
    }

    #[test]
    fn a_message_goes_to_those_with_a_session_in_its_project() {
        let (alpha, mut addressees) = (Mark::of("alpha"), Addressees::default());
        let session = SessionId(alpha.scoped(Uuid::nil()));
        let master = resource(Kind::Master, "p");
        let beats = vec![Beat { subject: Subject::Session { session, master }, ttl: TTL }];
        assert!(addressees.handle_request(NOW, alpha, &Request::Renew(beats)));
        let message = |project: &str, session| News::Message {
            tenant: "t".into(),
            project: project.into(),
            session,
            payload: serde_json::Value::Null,
        };
        assert_eq!(addressees.of(NOW, &message("p", None)), To::These(vec![alpha]));
        assert_eq!(addressees.of(NOW, &message("q", None)), To::These(vec![]));
        assert_eq!(addressees.of(NOW, &message("q", Some(session))), To::These(vec![alpha]));
        let later = NOW + TTL * REMEMBERED_TTLS;
        assert_eq!(addressees.of(later, &message("p", None)), To::These(vec![]));
    }

    #[test]
    fn with_too_many_questions_everybody_asks_anew() {
        let (alpha, mut addressees) = (Mark::of("alpha"), Addressees::default());
        for number in 0..QUESTIONS_MAX {
            assert!(addressees.ask(alpha, &resource(Kind::Lease, &number.to_string())));
        }
        let one_more = resource(Kind::Lease, "one more");
        assert!(!addressees.ask(alpha, &one_more));
        assert_eq!(addressees.of(NOW, &News::Reset), To::Everybody(vec![alpha]));
        assert!(addressees.ask(alpha, &one_more));
        assert_eq!((addressees.asked.len(), addressees.questions), (1, 1));
    }
}

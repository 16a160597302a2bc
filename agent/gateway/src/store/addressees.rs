//! Pure. Whom news concern.
//!
//! Whoever asked about a resource is told of its next change, once, and asks again if it wants to know still: a
//! change costs no more events than there were questions, however many streams are open.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{Answer, BeatAnswer, ClaimAnswer, Request, Resource, Subject};
use tenure_core::time::Boottime;
use tenure_stores::gateway::scope::Mark;
use tenure_stores::gateway::wire::News;
use tenure_wire::Role;

/// Questions that are remembered. Before one more everybody is made to ask anew.
const QUESTIONS_MAX: usize = 65_536;
/// Questions of one principal. Before one more it alone is made to ask anew.
const QUESTIONS_OF_ONE_MAX: usize = 8192;
/// Projects in which one principal is remembered to have sessions; more than it may have sessions by default. Before
/// one more it alone is made to ask anew, and its beats bring back those that last.
const PROJECTS_OF_ONE_MAX: usize = 32_768;
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

/// The news that a principal wants to hear, if the store answers its request so.
#[derive(Debug)]
pub(super) enum Interest {
    /// The next change of what it claims, if others hold that.
    Claim(Resource),
    /// The messages of the projects of its sessions, if they are there: for each announcement or beat the master and
    /// the ttl; `None` for the beat of a claim.
    Sessions(Vec<Option<(Resource, Duration)>>),
}

impl Interest {
    pub(super) fn of(request: &Request) -> Option<Interest> {
        match request {
            Request::Claim(claim) => Some(Interest::Claim(claim.resource.clone())),
            // Agents tell each other nothing.
            Request::Announce(record) if !record.is_agent() => {
                Some(Interest::Sessions(vec![Some((record.master(), record.ttl))]))
            }
            Request::Renew(beats) => {
                let session = |subject: &Subject| matches!(subject, Subject::Session { .. });
                let of_beats = beats.iter().map(|beat| match &beat.subject {
                    Subject::Session { master, .. } => Some((master.clone(), beat.ttl)),
                    Subject::Claim { .. } => None,
                });
                let has_sessions = beats.iter().any(|beat| session(&beat.subject));
                has_sessions.then(|| Interest::Sessions(of_beats.collect()))
            }
            _ => None,
        }
    }
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
    shares: HashMap<Mark, Share>,
}

/// How much of it is of one principal.
#[derive(Debug, Default)]
struct Share {
    questions: usize,
    projects: usize,
}

impl Addressees {
    /// A request is about to be made. If there are too many questions for that, some are to be told of [`News::Reset`]
    /// before.
    pub(super) fn handle_request(&mut self, mark: Mark, request: &Request) -> Option<To> {
        match request {
            Request::Inspect(resource) | Request::Holders(resource) => self.ask(mark, resource),
            _ => None,
        }
    }

    /// The store has answered. Whom to tell of [`News::Reset`], as in [`Addressees::handle_request`].
    pub(super) fn handle_answer(
        &mut self,
        now: Boottime,
        mark: Mark,
        interest: &Interest,
        answer: &Answer,
    ) -> Option<To> {
        match (interest, answer) {
            (Interest::Claim(resource), Answer::Claim(ClaimAnswer::Contended { .. })) => {
                self.ask(mark, resource)
            }
            (Interest::Sessions(sessions), Answer::Announced) => {
                let announced = sessions.iter().flatten();
                announced.filter_map(|(master, ttl)| self.join(now, mark, master, *ttl)).last()
            }
            (Interest::Sessions(sessions), Answer::Renew(answers)) => {
                let is_there = |answer: &BeatAnswer| {
                    matches!(answer, BeatAnswer::Session { role: Role::Master | Role::Peer })
                };
                let beaten = sessions.iter().zip(answers);
                let beaten = beaten.filter(|(_, answer)| is_there(answer));
                let beaten = beaten.filter_map(|(session, _)| session.as_ref());
                beaten.filter_map(|(master, ttl)| self.join(now, mark, master, *ttl)).last()
            }
            _ => None,
        }
    }

    /// The next change of a resource concerns a principal.
    fn ask(&mut self, mark: Mark, resource: &Resource) -> Option<To> {
        let of_one = self.shares.get(&mark).map_or(0, |share| share.questions);
        let reset = if of_one >= QUESTIONS_OF_ONE_MAX {
            Some(self.forget_one(mark))
        } else if self.questions >= QUESTIONS_MAX {
            Some(To::Everybody(self.forget()))
        } else {
            None
        };
        let marks = self.asked.entry(resource.clone()).or_default();
        if !marks.contains(&mark) {
            marks.push(mark);
            self.questions += 1;
            self.shares.entry(mark).or_default().questions += 1;
        }
        reset
    }

    /// Forgets all questions; whose they were.
    fn forget(&mut self) -> Vec<Mark> {
        self.questions = 0;
        self.shares.retain(|_, share| {
            share.questions = 0;
            share.projects > 0
        });
        let marks: HashSet<_> = self.asked.drain().flat_map(|(_, marks)| marks).collect();
        marks.into_iter().collect()
    }

    /// Forgets all that one principal asked for.
    fn forget_one(&mut self, mark: Mark) -> To {
        self.asked.retain(|_, marks| {
            marks.retain(|it| *it != mark);
            !marks.is_empty()
        });
        self.members.retain(|_, members| {
            members.remove(&mark);
            !members.is_empty()
        });
        let share = self.shares.remove(&mark).unwrap_or_default();
        self.questions -= share.questions;
        self.joined -= share.projects;
        To::These(vec![mark])
    }

    fn join(&mut self, now: Boottime, mark: Mark, master: &Resource, ttl: Duration) -> Option<To> {
        let key = (Arc::clone(&master.tenant), Arc::clone(&master.name));
        let until = now + ttl * REMEMBERED_TTLS;
        if let Some(known) = self.members.get_mut(&key).and_then(|members| members.get_mut(&mark)) {
            *known = (*known).max(until);
            return None;
        }
        let of_one = self.shares.get(&mark).map_or(0, |share| share.projects);
        let reset = (of_one >= PROJECTS_OF_ONE_MAX).then(|| self.forget_one(mark));
        self.members.entry(key).or_default().insert(mark, until);
        self.shares.entry(mark).or_default().projects += 1;
        self.joined += 1;
        if self.joined > self.sweep_above + SWEEP_ABOVE {
            self.sweep(now);
            self.sweep_above = self.joined * 2;
        }
        reset
    }

    /// Forgets sessions that were not renewed.
    fn sweep(&mut self, now: Boottime) {
        let Addressees { members, shares, joined, .. } = self;
        members.retain(|_, members| {
            for (mark, _) in members.extract_if(|_, until| *until <= now) {
                *joined -= 1;
                if let Some(share) = shares.get_mut(&mark) {
                    share.projects -= 1;
                }
            }
            !members.is_empty()
        });
        shares.retain(|_, share| share.questions + share.projects > 0);
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
                for mark in &asked {
                    if let Some(share) = self.shares.get_mut(mark) {
                        share.questions -= 1;
                    }
                }
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
    use tenure_core::model::{Beat, GoneReason, SessionId};
    use tenure_wire::{Kind, Role};
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
            let request = Request::Inspect(role.clone());
            assert_eq!(addressees.handle_request(mark, &request), None);
        }
        assert_eq!(addressees.of(NOW, &news), To::These(vec![alpha, beta]));
        assert_eq!(addressees.of(NOW, &news), To::These(vec![]));
        assert_eq!(addressees.questions, 0);
        assert_eq!(addressees.ask(beta, &role), None);
        assert_eq!(addressees.of(NOW, &News::FeedLost), To::Everybody(vec![beta]));
        assert_eq!(addressees.of(NOW, &news), To::These(vec![]));
    }

    #[test]
    fn a_message_goes_to_those_with_a_session_in_its_project() {
        let (alpha, mut addressees) = (Mark::of("alpha"), Addressees::default());
        let session = SessionId(alpha.scoped(Uuid::nil()));
        let master = resource(Kind::Master, "p");
        let beats = vec![Beat { subject: Subject::Session { session, master }, ttl: TTL }];
        let interest = Interest::of(&Request::Renew(beats)).unwrap();
        let mut answer = |answer| {
            let answers = Answer::Renew(vec![answer]);
            assert_eq!(addressees.handle_answer(NOW, alpha, &interest, &answers), None);
            addressees.joined
        };
        let gone = BeatAnswer::Gone(GoneReason::Unknown);
        assert_eq!(answer(gone), 0, "there is no such session");
        assert_eq!(answer(BeatAnswer::Session { role: Role::Peer }), 1);
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
        let mut addressees = Addressees::default();
        let marks = |number: usize| Mark::of(&format!("p{}", number % 16));
        for number in 0..QUESTIONS_MAX {
            let role = resource(Kind::Lease, &number.to_string());
            assert_eq!(addressees.ask(marks(number), &role), None);
        }
        let one_more = resource(Kind::Lease, "one more");
        let Some(To::Everybody(told)) = addressees.ask(marks(0), &one_more) else {
            panic!("there were too many")
        };
        assert_eq!(told.len(), 16);
        assert_eq!((addressees.asked.len(), addressees.questions), (1, 1));
    }

    #[test]
    fn a_principal_with_too_many_of_its_own_asks_anew_alone() {
        let (alpha, beta, mut addressees) =
            (Mark::of("alpha"), Mark::of("beta"), Addressees::default());
        let role = resource(Kind::Leader, "x");
        assert_eq!(addressees.ask(beta, &role), None);
        let number = |number: usize| resource(Kind::Master, &number.to_string());
        let is_reset = |to: Option<To>| to.is_some_and(|to| to == To::These(vec![alpha]));
        let resets = (0..QUESTIONS_OF_ONE_MAX * 3)
            .filter(|at| is_reset(addressees.ask(alpha, &number(*at))));
        assert_eq!(resets.count(), 2);
        assert!(addressees.questions <= QUESTIONS_OF_ONE_MAX + 1);
        let resets = (0..PROJECTS_OF_ONE_MAX * 2)
            .filter(|at| is_reset(addressees.join(NOW, alpha, &number(*at), TTL)));
        assert_eq!(resets.count(), 1);
        assert!(addressees.joined <= PROJECTS_OF_ONE_MAX);
        let news = News::Resource(role);
        assert_eq!(addressees.of(NOW, &news), To::These(vec![beta]), "others are left alone");

        addressees.sweep(NOW + TTL * REMEMBERED_TTLS);
        assert_eq!((addressees.joined, addressees.members.len()), (0, 0));
        assert_eq!(addressees.of(NOW, &News::Reset), To::Everybody(vec![]));
        assert_eq!(addressees.shares.len(), 0);
    }
}

//! Pure. Whom news concern.
//!
//! Whoever asked about a resource is told of its next change, once, and asks again if it wants to know still: a
//! change costs no more events than there were questions, however many streams are open.
//!
//! Sessions are remembered when the store has confirmed them, and a principal with too many questions or projects
//! loses some of its own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{
    Answer, BeatAnswer, ClaimAnswer, Request, Resource, SessionRecord, Subject,
};
use tenure_core::time::Boottime;
use tenure_stores::gateway::scope::{Mark, MarkMap};
use tenure_stores::gateway::wire::News;

/// Questions that are remembered, of all principals. Before one more, the principal with most is made to ask anew.
const QUESTIONS_MAX: usize = 65_536;
/// Projects of a principal that are remembered: more than it has sessions, by default. Before one more, the half
/// whose sessions end first is forgotten, until their next beats.
const PROJECTS_OF_PRINCIPAL_MAX: usize = 32_768;
/// A session that is not renewed is remembered for so many ttls, but no longer than [`REMEMBERED_AFTER_END_MAX`] after its
/// end.
const REMEMBERED_TTLS: u32 = 3;
/// Longest time that a session is remembered after its end.
const REMEMBERED_AFTER_END_MAX: Duration = Duration::from_secs(3600);
/// Members are looked through when there are so many more than twice those of the last time.
const SWEEP_ABOVE: usize = 1024;

/// Those whom news concern.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum To {
    /// All streams here, and the principals that asked something of this gateway.
    Everybody(Vec<Mark>),
    These(Vec<Mark>),
}

/// The news that will concern a caller if the store answers its request well.
#[derive(Debug)]
pub(super) enum Interest {
    Nothing,
    /// The next change of what it claims, if others have it.
    Claimed(Resource),
    /// Messages to the project of a session.
    Session(Membership),
    /// The same of sessions that are renewed, by the places of their beats.
    Sessions(Vec<(usize, Membership)>),
}

/// A session in a project.
#[derive(Debug)]
pub(super) struct Membership {
    tenant: Arc<str>,
    project: Arc<str>,
    ttl: Duration,
}

impl Interest {
    pub(super) fn of(request: &Request) -> Interest {
        let membership = |master: &Resource, ttl| Membership {
            tenant: Arc::clone(&master.tenant),
            project: Arc::clone(&master.name),
            ttl,
        };
        match request {
            Request::Claim(claim) => Interest::Claimed(claim.resource.clone()),
            // Agents tell each other nothing.
            Request::Announce(record) if record.is_agent() => Interest::Nothing,
            Request::Announce(SessionRecord { tenant, project, ttl, .. }) => {
                let (tenant, project) = (Arc::clone(tenant), Arc::clone(project));
                Interest::Session(Membership { tenant, project, ttl: *ttl })
            }
            Request::Renew(beats) => {
                let sessions = beats.iter().enumerate().filter_map(|(at, beat)| {
                    let Subject::Session { master, .. } = &beat.subject else { return None };
                    Some((at, membership(master, beat.ttl)))
                });
                Interest::Sessions(sessions.collect())
            }
            _ => Interest::Nothing,
        }
    }
}

/// What principals asked for.
#[derive(Debug, Default)]
pub(super) struct Addressees {
    asked: HashMap<Resource, Vec<Mark>>,
    /// The same by principal.
    asked_by: MarkMap<HashSet<Resource>>,
    questions: usize,
    /// By tenant and project: who has a session in it, and until when that is remembered.
    members: HashMap<(Arc<str>, Arc<str>), MarkMap<Boottime>>,
    /// The number of projects of each principal.
    projects_of: MarkMap<usize>,
    joined: usize,
    sweep_above: usize,
}

impl Addressees {
    /// A request is about to be made. Returns who must be told of [`News::Reset`] before, as with
    /// [`Addressees::ask`].
    #[must_use]
    pub(super) fn handle_request(&mut self, mark: Mark, request: &Request) -> Option<Mark> {
        match request {
            Request::Inspect(resource) | Request::Holders(resource) => self.ask(mark, resource),
            _ => None,
        }
    }

    /// A request was answered. Returns who must be told of [`News::Reset`], as with [`Addressees::ask`].
    #[must_use]
    pub(super) fn handle_answer(
        &mut self,
        now: Boottime,
        mark: Mark,
        interest: &Interest,
        answer: &Answer,
    ) -> Option<Mark> {
        match (interest, answer) {
            (Interest::Claimed(resource), Answer::Claim(ClaimAnswer::Contended { .. })) => {
                return self.ask(mark, resource);
            }
            (Interest::Session(membership), Answer::Announced) => self.join(now, mark, membership),
            (Interest::Sessions(sessions), Answer::Renew(answers)) => {
                for (at, membership) in sessions {
                    if let Some(BeatAnswer::Session { .. }) = answers.get(*at) {
                        self.join(now, mark, membership);
                    }
                }
            }
            _ => {}
        }
        None
    }

    /// The next change of a resource concerns a principal. If there are too many questions, those of the principal
    /// with most are forgotten, and it is returned: it must be told of [`News::Reset`].
    #[must_use]
    pub(super) fn ask(&mut self, mark: Mark, resource: &Resource) -> Option<Mark> {
        if self.asked_by.get(&mark).is_some_and(|asked| asked.contains(resource)) {
            return None;
        }
        let displaced = (self.questions >= QUESTIONS_MAX).then(|| self.forget_most()).flatten();
        self.asked_by.entry(mark).or_default().insert(resource.clone());
        self.asked.entry(resource.clone()).or_default().push(mark);
        self.questions += 1;
        displaced
    }

    /// Forgets the questions of the principal with most.
    fn forget_most(&mut self) -> Option<Mark> {
        let (mark, _) = self.asked_by.iter().max_by_key(|(_, asked)| asked.len())?;
        let mark = *mark;
        for resource in self.asked_by.remove(&mark)? {
            self.questions -= 1;
            if let Some(marks) = self.asked.get_mut(&resource) {
                marks.retain(|other| *other != mark);
                if marks.is_empty() {
                    self.asked.remove(&resource);
                }
            }
        }
        Some(mark)
    }

    /// Forgets all questions; whose they were.
    fn forget(&mut self) -> Vec<Mark> {
        self.questions = 0;
        self.asked.clear();
        self.asked_by.drain().map(|(mark, _)| mark).collect()
    }

    /// Those who asked about a resource, whose questions are answered.
    fn take_asked(&mut self, resource: &Resource) -> Vec<Mark> {
        let marks = self.asked.remove(resource).unwrap_or_default();
        self.questions -= marks.len();
        for mark in &marks {
            if let Some(asked) = self.asked_by.get_mut(mark) {
                asked.remove(resource);
                if asked.is_empty() {
                    self.asked_by.remove(mark);
                }
            }
        }
        marks
    }

    fn join(&mut self, now: Boottime, mark: Mark, membership: &Membership) {
        let Membership { tenant, project, ttl } = membership;
        let after_end = *ttl * (REMEMBERED_TTLS - 1);
        let until = now + *ttl + after_end.min(REMEMBERED_AFTER_END_MAX);
        let members = self.members.entry((Arc::clone(tenant), Arc::clone(project))).or_default();
        if let Some(known) = members.get_mut(&mark) {
            *known = (*known).max(until);
            return;
        }
        members.insert(mark, until);
        self.joined += 1;
        let projects = self.projects_of.entry(mark).or_default();
        *projects += 1;
        if *projects > PROJECTS_OF_PRINCIPAL_MAX {
            let median = self.median_end(mark);
            self.sweep(|of, until| until > now && (of != mark || until > median));
        } else if self.joined > self.sweep_above + SWEEP_ABOVE {
            self.sweep(|_, until| until > now);
            self.sweep_above = self.joined * 2;
        }
    }

    /// The time until half of the sessions of a principal are remembered.
    fn median_end(&self, mark: Mark) -> Boottime {
        let ends = self.members.values().filter_map(|members| members.get(&mark));
        let mut ends: Vec<_> = ends.copied().collect();
        ends.sort_unstable();
        ends.get(ends.len() / 2).copied().unwrap_or(Boottime::ZERO)
    }

    /// Remembers those members alone, by principal and time.
    fn sweep(&mut self, is_kept: impl Fn(Mark, Boottime) -> bool) {
        self.members.retain(|_, members| {
            members.retain(|mark, until| is_kept(*mark, *until));
            !members.is_empty()
        });
        if self.members.len() < self.members.capacity() / 4 {
            self.members.shrink_to_fit();
        }
        self.projects_of.clear();
        for mark in self.members.values().flat_map(HashMap::keys) {
            *self.projects_of.entry(*mark).or_default() += 1;
        }
        self.joined = self.projects_of.values().sum();
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
            News::Resource(resource) => self.take_asked(resource),
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
    /// The answer to the beat of a session that is there.
    const THERE: BeatAnswer = BeatAnswer::Session { role: Role::Peer };

    fn resource(kind: Kind, name: &str) -> Resource {
        Resource { tenant: "t".into(), kind, name: name.into() }
    }

    fn message(project: &str, session: Option<SessionId>) -> News {
        let (tenant, payload) = ("t".into(), serde_json::Value::Null);
        News::Message { tenant, project: project.into(), session, payload }
    }

    /// Renews a session in each project, of which the store says this.
    fn beat(
        addressees: &mut Addressees,
        now: Boottime,
        mark: Mark,
        projects: &[&str],
        ttl: Duration,
        answer: BeatAnswer,
    ) {
        let session = SessionId(mark.scoped(Uuid::nil()));
        let beats = projects.iter().map(|project| {
            let master = resource(Kind::Master, project);
            Beat { subject: Subject::Session { session, master }, ttl }
        });
        let request = Request::Renew(beats.collect());
        assert_eq!(addressees.handle_request(mark, &request), None);
        let answer = Answer::Renew(vec![answer; projects.len()]);
        let interest = Interest::of(&request);
        assert_eq!(addressees.handle_answer(now, mark, &interest, &answer), None);
    }

    #[test]
    fn whoever_asks_is_told_of_the_next_change_once() {
        let (alpha, beta) = (Mark::of("alpha"), Mark::of("beta"));
        let mut addressees = Addressees::default();
        let role = resource(Kind::Leader, "x");
        let news = News::Resource(role.clone());
        assert_eq!(addressees.of(NOW, &news), To::These(vec![]));
        for mark in [alpha, beta, alpha] {
            let inspect = Request::Inspect(role.clone());
            assert_eq!(addressees.handle_request(mark, &inspect), None);
        }
        assert_eq!(addressees.of(NOW, &news), To::These(vec![alpha, beta]));
        assert_eq!(addressees.of(NOW, &news), To::These(vec![]));
        assert_eq!(addressees.questions, 0);
        assert!(addressees.asked.is_empty() && addressees.asked_by.is_empty());
        assert_eq!(addressees.ask(beta, &role), None);
        assert_eq!(addressees.of(NOW, &News::FeedLost), To::Everybody(vec![beta]));
        assert_eq!(addressees.of(NOW, &news), To::These(vec![]));
    }

    #[test]
    fn a_message_goes_to_those_with_a_session_in_its_project() {
        let (alpha, mut addressees) = (Mark::of("alpha"), Addressees::default());
        let session = SessionId(alpha.scoped(Uuid::nil()));
        beat(&mut addressees, NOW, alpha, &["p"], TTL, THERE);
        assert_eq!(addressees.of(NOW, &message("p", None)), To::These(vec![alpha]));
        assert_eq!(addressees.of(NOW, &message("q", None)), To::These(vec![]));
        assert_eq!(addressees.of(NOW, &message("q", Some(session))), To::These(vec![alpha]));
        let later = NOW + TTL * REMEMBERED_TTLS;
        assert_eq!(addressees.of(later, &message("p", None)), To::These(vec![]));
    }

    #[test]
    fn sessions_that_the_store_does_not_have_are_not_remembered() {
        let (alpha, mut addressees) = (Mark::of("alpha"), Addressees::default());
        let names: Vec<_> = (0..10_000).map(|number| number.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let gone = BeatAnswer::Gone(GoneReason::Unknown);
        beat(&mut addressees, NOW, alpha, &names, TTL, gone);
        assert!(addressees.members.is_empty() && addressees.projects_of.is_empty());
        beat(&mut addressees, NOW, alpha, &names, TTL, THERE);
        assert_eq!((addressees.joined, addressees.projects_of[&alpha]), (10_000, 10_000));
    }

    #[test]
    fn a_long_session_is_not_remembered_for_long_after_its_end() {
        let (alpha, mut addressees) = (Mark::of("alpha"), Addressees::default());
        let year = Duration::from_secs(360 * 86_400);
        beat(&mut addressees, NOW, alpha, &["p"], year, THERE);
        assert_eq!(addressees.of(NOW + year, &message("p", None)), To::These(vec![alpha]));
        let later = NOW + year + REMEMBERED_AFTER_END_MAX;
        assert_eq!(addressees.of(later, &message("p", None)), To::These(vec![]));
    }

    #[test]
    fn a_principal_with_too_many_projects_loses_its_own_whose_sessions_end_first() {
        let (alpha, beta) = (Mark::of("alpha"), Mark::of("beta"));
        let mut addressees = Addressees::default();
        beat(&mut addressees, NOW, beta, &["p"], TTL, THERE);
        for number in 0..PROJECTS_OF_PRINCIPAL_MAX + 10_000 {
            let ttl = TTL + Duration::from_millis(number as u64);
            beat(&mut addressees, NOW, alpha, &[&number.to_string()], ttl, THERE);
            assert!(addressees.projects_of[&alpha] <= PROJECTS_OF_PRINCIPAL_MAX);
        }
        let last = (PROJECTS_OF_PRINCIPAL_MAX + 9_999).to_string();
        assert_eq!(addressees.of(NOW, &message(&last, None)), To::These(vec![alpha]));
        assert_eq!(addressees.of(NOW, &message("0", None)), To::These(vec![]));
        assert_eq!(addressees.of(NOW, &message("p", None)), To::These(vec![beta]));
        assert_eq!(addressees.joined, addressees.projects_of.values().sum::<usize>());
    }

    #[test]
    fn with_too_many_questions_the_principal_with_most_asks_anew() {
        let [alpha, beta, gamma] = ["alpha", "beta", "gamma"].map(Mark::of);
        let mut addressees = Addressees::default();
        let role = resource(Kind::Leader, "x");
        assert_eq!(addressees.ask(beta, &role), None);
        for number in 1..QUESTIONS_MAX {
            let resource = resource(Kind::Lease, &number.to_string());
            assert_eq!(addressees.ask(alpha, &resource), None);
            assert_eq!(addressees.ask(alpha, &resource), None, "it is the same question");
        }
        assert_eq!(addressees.ask(gamma, &role), Some(alpha), "it alone has to");
        assert_eq!((addressees.asked.len(), addressees.questions), (1, 2));
        assert_eq!(addressees.of(NOW, &News::Resource(role)), To::These(vec![beta, gamma]));
        assert_eq!((addressees.asked_by.len(), addressees.questions), (0, 0));
    }
}

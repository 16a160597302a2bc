//! The agents, for people: those that the store knows, whichever gateway they use or none, and what this gateway alone
//! knows of those that speak with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use serde::Serialize;
use tenure_core::model::{
    self, AgentSeen, Answer, Beat, ClaimId, SHOWN_FOR, SessionId, Subject, UNSEEN_AFTER,
};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_stores::gateway::scope::{Mark, MarkMap};
use tenure_stores::gateway::wire::Hello;
use uuid::Uuid;

use crate::access::{Caller, Right};
use crate::face::Face;
use crate::face::refused::Refused;

/// Agents that are known at a time. Before one more, one of the principal with most is forgotten: the one that has been
/// silent for longest.
const AGENTS_MAX: usize = 10_000;
/// An agent that has said nothing for so long is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// How often it is looked for those who have gone, and for claims that have.
const FORGET_EVERY: Duration = Duration::from_secs(5);
/// Beats whose lateness counts, about: half of it is forgotten when there are more.
const REMEMBERED: u32 = 4096;
/// Most of them that one principal may have make themselves known here.
const SHOWN_OF_PRINCIPAL_MAX: usize = 5000;
/// Claims of all agents whose beats are followed, about 60 bytes each; more are not counted.
const CLAIMS_MAX: usize = 200_000;
/// An agent beats each claim when a third of its ttl has passed, or sooner.
const BEATS_PER_TTL: u32 = 3;

/// The agents.
#[derive(Debug, Default)]
pub(in crate::face) struct Agents(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    agents: MarkMap<HashMap<String, Agent>>,
    /// Those that made themselves known here, by the ids that the store has, and until when.
    shown: HashMap<Uuid, Boottime>,
    /// Those of all of them.
    claims: usize,
    forget_at: Boottime,
}

/// The principal, and what the agent calls itself; an older one goes by its address.
type Key = (Mark, String);

/// The agent that sent a call.
#[derive(Debug, Clone)]
pub(in crate::face) struct Sender {
    key: Key,
    principal: Arc<str>,
    address: Option<String>,
}

#[derive(Debug)]
struct Agent {
    host: Option<String>,
    version: String,
    principal: Arc<str>,
    address: Option<String>,
    since: Boottime,
    said: Boottime,
    beat: Option<Boottime>,
    late: Late,
    /// Its id in the store; `None` before it has made itself known.
    shown_as: Option<Uuid>,
    /// What it beats.
    claims: HashMap<ClaimId, Beaten>,
}

#[derive(Debug)]
struct Beaten {
    at: Boottime,
    ttl: Duration,
}

/// How late beats came, in ms: on time, up to 1, 3, 7, 15 …
#[derive(Debug, Default)]
struct Late {
    counts: [u32; 18],
    sum: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct Listed {
    agents: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    /// Its id in the store; `None` of one that does not make itself known.
    agent: Option<Arc<str>>,
    /// `None` of an agent that does not say.
    host: Option<String>,
    version: String,
    /// `None` of one that uses no gateway.
    principal: Option<Arc<str>>,
    address: Option<String>,
    /// Its time since its start; of one that does not make itself known since it was first heard of here, ms.
    connected_ms: u64,
    /// The time since the store heard of it, ms; `None` of one that does not make itself known.
    last_seen_ms: Option<u64>,
    /// False if that is too long ago.
    seen: bool,
    /// How long ago its last beats came, ms; `None` before the first.
    last_beat_ms: Option<u64>,
    /// How much later than a third of the claim's ttl after the one before its beats come, but for a hundredth of
    /// them; no exact number. `None` before any second one.
    beat_late_p99_ms: Option<u64>,
    /// The claims that it keeps alive.
    claims: usize,
}

impl Sender {
    /// The agent that sent a call, by the header in which it names itself.
    pub(in crate::face) fn of(caller: &Caller, agent: Option<&HeaderValue>) -> Sender {
        let address = caller.peer.map(|peer| peer.ip().to_string());
        let said = agent.and_then(|it| it.to_str().ok()).map(short);
        let own = said.or_else(|| address.clone()).unwrap_or_default();
        let principal = Arc::clone(&caller.principal.name);
        Sender { key: (caller.principal.mark, own), principal, address }
    }
}

impl Agents {
    /// An agent says who it is.
    pub(in crate::face) fn hello(&self, sender: Sender, hello: Hello) {
        let now = clock::now();
        let mut known = self.known();
        known.forget(now);
        if known.agent(&sender.key).is_none() && !known.make_room(sender.key.0) {
            return;
        }
        let Sender { key: (mark, own), principal, address } = sender;
        let agents = known.agents.entry(mark).or_default();
        let agent = agents.entry(own).or_insert_with(|| Agent::new(now, principal));
        agent.host = hello.host.as_deref().map(short);
        agent.version = short(&hello.version);
        agent.address = address;
        agent.said = now;
    }

    /// An agent has beaten; `None` if the store did not answer. Claims that the store does not have are not counted.
    pub(in crate::face) fn beats(
        &self,
        sender: &Sender,
        came: Boottime,
        mut beats: Vec<Beat>,
        answer: Option<&Answer>,
    ) {
        let mut known = self.known();
        let mut room = CLAIMS_MAX.saturating_sub(known.claims);
        let Some(agent) = known.agent(&sender.key) else { return };
        if let Some(Answer::Renew(answers)) = answer {
            let mut answers = answers.iter();
            beats.retain(|_| answers.next().is_some_and(|answer| answer.gone().is_none()));
        } else {
            // Without an answer new claims may not exist.
            room = 0;
        }
        let before = agent.claims.len();
        agent.beats(came, &beats, room);
        let after = agent.claims.len();
        known.claims = (known.claims + after).saturating_sub(before);
    }

    /// An agent makes itself known. False if it is one too many.
    #[must_use]
    pub(in crate::face) fn shows(&self, sender: &Sender, SessionId(agent): SessionId) -> bool {
        let (now, mark) = (clock::now(), sender.key.0);
        let mut known = self.known();
        known.forget(now);
        if !known.shown.contains_key(&agent) {
            let of_principal = known.shown.keys().filter(|id| mark.is_of(**id)).count();
            if of_principal >= SHOWN_OF_PRINCIPAL_MAX || known.shown.len() >= AGENTS_MAX {
                return false;
            }
        }
        // Another one's id is refused by the store's side.
        if mark.is_of(agent) {
            known.shown.insert(agent, now + SHOWN_FOR);
            if let Some(sender) = known.agent(&sender.key) {
                (sender.shown_as, sender.said) = (Some(agent), now);
            }
        }
        true
    }

    /// Those in the store that somebody may see, and of those that do not make themselves known its own; with a key
    /// without bounds all.
    fn lines(&self, caller: &Caller, seen: &[AgentSeen]) -> Vec<Line> {
        let now = clock::now();
        let mut known = self.known();
        known.forget(now);
        let sees_all = caller.bounds.scope.names_all() && caller.has(Right::Agents);
        let own = caller.principal.mark;
        let mut here = HashMap::new();
        let mut lines = Vec::new();
        let all = known.agents.iter();
        for (mark, agent) in all.flat_map(|(mark, of)| of.values().map(move |agent| (mark, agent)))
        {
            let line = agent.line(now);
            match agent.shown_as {
                Some(id) => drop(here.insert(id, line)),
                None if sees_all || *mark == own => lines.push(line),
                None => {}
            }
        }
        lines.extend(seen.iter().map(|agent| {
            let here = agent.agent.parse().ok().and_then(|id: Uuid| here.remove(&id));
            Line::of(agent, here)
        }));
        lines.sort_by(|a, b| (&a.host, &a.principal).cmp(&(&b.host, &b.principal)));
        lines
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Forgets who has gone. Looks through all, so that nobody is asked more often than every few seconds.
    fn forget(&mut self, now: Boottime) {
        if now < self.forget_at {
            return;
        }
        self.forget_at = now + FORGET_EVERY;
        self.agents.retain(|_, agents| {
            agents.retain(|_, agent| now.since(agent.said) < FORGET_AFTER);
            !agents.is_empty()
        });
        self.agents.values_mut().flat_map(HashMap::values_mut).for_each(|agent| agent.forget(now));
        self.shown.retain(|_, until| *until > now);
        let agents = self.agents.values().flat_map(HashMap::values);
        self.claims = agents.map(|agent| agent.claims.len()).sum();
    }

    fn agent(&mut self, (mark, own): &Key) -> Option<&mut Agent> {
        self.agents.get_mut(mark)?.get_mut(own)
    }

    /// Makes room for one more agent of a principal. False if no other principal has more than it will have: two that
    /// have the same number would displace each other for ever.
    fn make_room(&mut self, mark: Mark) -> bool {
        if self.agents.values().map(HashMap::len).sum::<usize>() < AGENTS_MAX {
            return true;
        }
        let own = self.agents.get(&mark).map_or(0, HashMap::len);
        let most = self.agents.values_mut().max_by_key(|agents| agents.len());
        let Some(most) = most.filter(|agents| agents.len() > own + 1) else { return false };
        let silent = most.iter().min_by_key(|(_, agent)| agent.said);
        let silent = silent.map(|(own, _)| own.clone());
        if let Some(forgotten) = silent.and_then(|own| most.remove(&own)) {
            self.claims = self.claims.saturating_sub(forgotten.claims.len());
        }
        true
    }
}

impl Agent {
    fn new(now: Boottime, principal: Arc<str>) -> Agent {
        Agent {
            host: None,
            version: String::new(),
            principal,
            address: None,
            since: now,
            said: now,
            beat: None,
            shown_as: None,
            late: Late::default(),
            claims: HashMap::new(),
        }
    }

    /// Takes beats; of claims that are new as many as there is room for.
    fn beats(&mut self, now: Boottime, beats: &[Beat], room: usize) {
        (self.said, self.beat) = (now, Some(now));
        let most = self.claims.len() + room;
        for Beat { subject, ttl } in beats {
            let Subject::Claim { claim, .. } = subject else { continue };
            let beaten = Beaten { at: now, ttl: *ttl };
            if let Some(before) = self.claims.get_mut(claim) {
                let before = std::mem::replace(before, beaten);
                self.late.add(now.since(before.at).saturating_sub(before.ttl / BEATS_PER_TTL));
            } else if self.claims.len() < most {
                self.claims.insert(*claim, beaten);
            }
        }
    }

    /// Forgets claims that it does not beat any more.
    fn forget(&mut self, now: Boottime) {
        self.claims.retain(|_, beaten| now.since(beaten.at) < beaten.ttl);
        if self.claims.capacity() > 1024 && self.claims.len() < self.claims.capacity() / 8 {
            self.claims.shrink_to_fit();
        }
    }

    fn line(&self, now: Boottime) -> Line {
        let ago = |at: Boottime| millis(now.since(at));
        let lasts = |beaten: &&Beaten| now.since(beaten.at) < beaten.ttl;
        Line {
            agent: None,
            host: self.host.clone(),
            version: self.version.clone(),
            principal: Some(Arc::clone(&self.principal)),
            address: self.address.clone(),
            connected_ms: ago(self.since),
            last_seen_ms: None,
            seen: true,
            last_beat_ms: self.beat.map(ago),
            beat_late_p99_ms: self.late.p99(),
            claims: self.claims.values().filter(lasts).count(),
        }
    }
}

impl Line {
    /// An agent as the store knows it, with more if it speaks with this gateway.
    fn of(AgentSeen { agent, host, ago, facts }: &AgentSeen, here: Option<Line>) -> Line {
        let claims = facts.held.saturating_add(facts.waiting);
        let claims = usize::try_from(claims).unwrap_or(usize::MAX);
        let seen = *ago <= UNSEEN_AFTER;
        Line {
            agent: Some(Arc::clone(agent)),
            host: Some(host.to_string()),
            version: facts.version.to_string(),
            principal: facts.principal.clone(),
            address: here.as_ref().and_then(|here| here.address.clone()),
            connected_ms: facts.up_ms.saturating_add(if seen { millis(*ago) } else { 0 }),
            last_seen_ms: Some(millis(*ago)),
            seen,
            last_beat_ms: here.as_ref().and_then(|here| here.last_beat_ms),
            beat_late_p99_ms: here.as_ref().and_then(|here| here.beat_late_p99_ms),
            claims: here.map_or(claims, |here| here.claims),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Late {
    fn add(&mut self, late: Duration) {
        if self.sum >= REMEMBERED {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.sum = self.counts.iter().sum();
        }
        let ms = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - ms.leading_zeros()) as usize;
        self.counts[bucket.min(self.counts.len() - 1)] += 1;
        self.sum += 1;
    }

    /// No more than a hundredth was later, ms.
    fn p99(&self) -> Option<u64> {
        let mut above = self.sum;
        let mut buckets = self.counts.iter().enumerate();
        let bucket = buckets.find(|(_, count)| {
            above -= **count;
            u64::from(above) * 100 <= u64::from(self.sum)
        });
        let (bucket, _) = bucket.filter(|_| self.sum > 0)?;
        Some((1 << bucket) - 1)
    }
}

/// As much of a text as is kept.
fn short(text: &str) -> String {
    model::short(text).to_string()
}

/// Tells of the agents of the store.
pub(super) async fn agents(
    State(face): State<Arc<Face>>,
    request: Request,
) -> Result<Json<Listed>, Refused> {
    let caller = face.admit_person(&request)?;
    let seen = face.agents(&caller).await?;
    Ok(Json(Listed { agents: face.people.agents.lines(&caller, &seen) }))
}

#[cfg(test)]
#[path = "agents_tests.rs"]
mod tests;

//! Programs that hold things in the machine while something is done to their agent.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tenure::wire::{Event, HoldState, LostReason};
use uuid::Uuid;

use super::Machine;
use crate::harness::{Client, EventLog, Puppet, Session, kind_of};

/// Programs.
const PROGRAMS: usize = 20;
const HOLDS: usize = 5;
/// Longer than any outage here.
const LINGER_MS: u64 = 600_000;

/// The agent's socket in the machine.
pub(super) const SOCKET: &str = "/run/tenured/api.sock";

/// Twenty programs with a hundred holds of all kinds.
pub struct Crowd {
    members: Vec<Member>,
    /// Token by hold.
    tokens: BTreeMap<Uuid, u64>,
}

struct Member {
    puppet: Puppet,
    session: Session,
    /// Kind, name and token.
    held: Vec<(&'static str, String, u64)>,
    /// One for each stream that it opened.
    logs: Vec<Arc<EventLog>>,
}

/// A puppet in the machine, run by a user.
#[track_caller]
pub(super) fn puppet(machine: &Machine, user: &str, program: &str) -> Puppet {
    Puppet::start_by(&mut machine.command_as(user, program), Path::new(SOCKET))
}

impl Crowd {
    /// Starts them as that user. Half of the sessions are tied to a stream, half to a process.
    #[track_caller]
    pub fn gather(machine: &Machine, user: &str, program: &str) -> Crowd {
        let mut tokens = BTreeMap::new();
        let members = (0..PROGRAMS).map(|number| {
            let mut puppet = puppet(machine, user, program);
            let tether = if number % 2 == 0 { "connection" } else { "process" };
            let session = puppet.register(&json!({
                "name": format!("program {number}"),
                "project": format!("project-{number}"),
                "tether": tether,
                "linger_ms": LINGER_MS,
            }));
            let events = puppet.open_events(session.session);
            events.snapshot();
            let held = (0..HOLDS).map(|which| {
                let (kind, more) = kind_of(which);
                let name = match kind {
                    "master" => format!("project-{number}"),
                    _ => format!("{kind}-{number}-{which}"),
                };
                let granted = puppet.acquire(session.session, kind, &name, &more);
                tokens.insert(granted.hold, granted.token);
                (kind, name, granted.token)
            });
            let held = held.collect();
            Member { puppet, session, held, logs: vec![events] }
        });
        let crowd = Crowd { members: members.collect(), tokens };
        assert_eq!(crowd.tokens.len(), PROGRAMS * HOLDS);
        crowd
    }

    /// The programs of the machine see the agent again, and miss nothing.
    #[track_caller]
    pub fn expect_all_kept(&mut self, machine: &Machine, program: &str) {
        let log = &machine.log;
        let mut root = puppet(machine, "root", program);
        let seen: BTreeMap<Uuid, u64> = root
            .status()
            .sessions
            .iter()
            .flat_map(|session| &session.holds)
            .filter(|hold| hold.state == HoldState::Held)
            .filter_map(|hold| Some((hold.hold, hold.token?)))
            .collect();
        let what =
            format!("the agent has the same {} holds with the same tokens", self.tokens.len());
        log.expect(&what, seen == self.tokens);

        for Member { puppet, session, logs, .. } in &mut self.members {
            let again = puppet.resume(session);
            assert_eq!(again.page, session.page, "a client's mapping stays right");
            let last = logs.last().and_then(|events| events.last_id());
            puppet.close_events(session.session);
            logs.push(puppet.open_events_after(session.session, last));
        }
        log.expect(&format!("{} programs take up their sessions", self.members.len()), true);
        for Member { puppet, held, .. } in &mut self.members {
            for (kind, name, token) in held {
                let standing = puppet.standing(kind, name);
                let stands = standing.holders.iter().any(|holder| holder.token == *token);
                assert!(stands, "{kind} {name} is not held with token {token}: {standing:?}");
            }
        }
        log.expect("every one of them stands as its holder", true);
        let lost = self.members.iter().flat_map(|member| &member.logs).find_map(|events| {
            events.all().into_iter().find(|seen| ["lost", "jeopardy"].contains(&seen.event.name()))
        });
        log.expect(&format!("no client was told lost or jeopardy{}", told(&lost)), lost.is_none());
    }

    /// The events that the agent sends to every client as it ends.
    #[track_caller]
    pub fn expect_shutdown(&self, machine: &Machine, cause: &str) {
        for member in &self.members {
            let events = member.logs.last().expect("each has opened a stream");
            assert_eq!(events.shutdown().cause, cause);
        }
        machine.log.expect(&format!("every client is told: shutdown, {cause}"), true);
    }

    /// Every hold was released, and its client told.
    #[track_caller]
    pub fn expect_all_released(&self, machine: &Machine) {
        for member in &self.members {
            let events = member.logs.last().expect("each has opened a stream");
            let seen = events.wait_end();
            let told = seen.iter().filter(|seen| match &seen.event {
                Event::Lost(lost) => lost.reason == LostReason::AgentStopping,
                _ => false,
            });
            assert_eq!(told.count(), HOLDS, "{seen:#?}");
        }
        machine.log.expect("every client is told of the end of each of its holds", true);
    }

    /// Takes out a program whose session is tied to its process: that, its number in the machine, and
    /// the leadership that it holds.
    #[track_caller]
    pub fn victim(&mut self) -> (Puppet, u32, String) {
        let mut member = self.members.remove(1);
        self.tokens.retain(|_, token| !member.held.iter().any(|(_, _, held)| held == token));
        let status = member.puppet.status();
        let own = status.sessions.iter().find(|it| it.session == member.session.session);
        let pid = own.and_then(|session| session.pid).expect("the kernel tells the process");
        let leader = member.held.iter().find(|(kind, _, _)| *kind == "leader");
        let leader = leader.expect("each has one").1.clone();
        (member.puppet, pid, leader)
    }
}

fn told(lost: &Option<crate::harness::Seen>) -> String {
    lost.as_ref().map(|seen| format!(", but one was: {seen:?}")).unwrap_or_default()
}

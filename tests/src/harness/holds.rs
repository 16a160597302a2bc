//! A hundred holds, which a test shakes.

use serde_json::json;
use tenure::wire::{HoldState, HoldView};

use super::{Agent, Campaigner, Client, Granted, until};

/// A session has 63 holds at most.
const SESSIONS: usize = 2;
const HOLDS_OF_SESSION: usize = 50;

/// A hundred holds of two programs.
pub struct Holds {
    programs: Vec<Campaigner>,
    granted: Vec<Vec<Granted>>,
}

impl Holds {
    /// The configuration of their agent. One that is not let in asks again after 15 s at the latest.
    pub const CONFIG: &str =
        "[session]\nttl = \"120s\"\nbeat = \"1s\"\n[leader]\nttl = \"120s\"\nbeat = \"1s\"\n";

    /// Takes them.
    #[track_caller]
    pub fn take(agent: &Agent) -> Holds {
        let mut programs: Vec<_> =
            (0..SESSIONS).map(|at| Campaigner::start(agent, &format!("program-{at}"))).collect();
        let granted = programs.iter_mut().enumerate().map(|(at, program)| {
            let name = |number| format!("role-{at}-{number}");
            let acquire = |number| program.acquire("leader", &name(number), &json!({}));
            (0..HOLDS_OF_SESSION).map(acquire).collect::<Vec<_>>()
        });
        let granted = granted.collect();
        Holds { programs, granted }
    }

    /// The agent's view of all that is held.
    fn views(agent: &Agent) -> Vec<HoldView> {
        let sessions = agent.http().status().sessions;
        sessions.into_iter().flat_map(|session| session.holds).collect()
    }

    /// All are held with the tokens of their grants, and were renewed after that instant. Nobody was told of a loss.
    #[track_caller]
    pub fn are_renewed_after(&self, agent: &Agent, instant_ns: u64) {
        let renewed = |view: &HoldView| {
            // A margin later, since it is taken off the ttl.
            let sent_ns = view.valid_until_boottime_ns.saturating_sub(view.ttl_ms * 1_000_000);
            view.state == HoldState::Held && sent_ns > instant_ns
        };
        until("every hold to be renewed", || Holds::views(agent).iter().all(renewed));
        let mut now: Vec<_> =
            Holds::views(agent).iter().map(|view| (view.hold, view.token)).collect();
        let mut before: Vec<_> =
            self.granted.iter().flatten().map(|grant| (grant.hold, Some(grant.token))).collect();
        now.sort();
        before.sort();
        assert_eq!(before.len(), SESSIONS * HOLDS_OF_SESSION);
        assert_eq!(now, before);
        for (program, granted) in self.programs.iter().zip(&self.granted) {
            for grant in granted {
                assert!(!program.events.has("lost", grant.hold), "{} is lost", grant.hold);
            }
        }
    }
}

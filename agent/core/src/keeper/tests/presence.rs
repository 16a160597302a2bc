//! The agent makes itself known, and costs its store little by that.

use std::time::Duration;

use uuid::Uuid;

use crate::engine::{Engine, EngineSettings, TokenRange};
use crate::keeper::journal::Saved;
use crate::keeper::{Command, Keeper, Presence, Reply, Request, Settings, Ticket};
use crate::model::{
    self, AgentSeen, DenialRule, Failure, Page, Quota, SHOWN_EVERY, SHOWN_FOR, SessionId,
};
use crate::time::Boottime;

/// The store answers, does not, or lets agents not make themselves known.
#[derive(Clone, Copy)]
enum Store {
    Up,
    Down,
    Denies,
}

/// Agents of one store.
struct Agents {
    keepers: Vec<Keeper>,
    engine: Engine,
    now: Boottime,
    store: Store,
    /// Every call of any of them.
    calls: usize,
    told: Vec<AgentSeen>,
}

fn agent(number: u128, is_shown: bool, now: Boottime) -> Keeper {
    let presence = Presence {
        agent: SessionId(Uuid::from_u128(number)),
        version: "1.2.3".into(),
        started: now,
        is_shown,
    };
    let host = format!("host{number}").into();
    let settings = Settings { host, presence: Some(presence), ..Settings::default() };
    let mut keeper = Keeper::new(settings, [7; 32], now);
    keeper.adopt(now, Saved::default());
    keeper
}

impl Agents {
    fn new(count: u128) -> Agents {
        let now = Boottime::from_nanos(1_000_000_000_000);
        let tokens = TokenRange { first: 1, last: 1_000_000 };
        let engine = Engine::new(EngineSettings::default(), tokens);
        let keepers = (1..=count).map(|number| agent(number, true, now)).collect();
        let mut agents =
            Agents { keepers, engine, now, store: Store::Up, calls: 0, told: Vec::new() };
        agents.pass(Duration::ZERO);
        agents
    }

    /// Lets time go by.
    fn pass(&mut self, by: Duration) {
        let until = self.now + by;
        loop {
            for at in 0..self.keepers.len() {
                self.keepers[at].handle_timeout(self.now);
                self.drain(at);
            }
            let due = self.keepers.iter().filter_map(Keeper::poll_timeout).min();
            match due.filter(|due| *due <= until) {
                Some(due) => self.now = due.max(self.now),
                None => break,
            }
        }
        self.now = until;
        self.engine.handle_timeout(until);
    }

    fn drain(&mut self, at: usize) {
        while let Some(command) = self.keepers[at].poll_command() {
            match command {
                Command::Call { call, request } => {
                    self.calls += 1;
                    let result = match self.store {
                        Store::Up => Ok(self.engine.handle(self.now, request)),
                        Store::Down => Err(Failure::Unavailable("away".to_owned())),
                        Store::Denies => {
                            let rule = DenialRule::Forbidden;
                            Err(Failure::Denied(model::Denial { rule, detail: String::new() }))
                        }
                    };
                    self.keepers[at].handle_answer(self.now, call, self.now, result);
                }
                Command::Reply { reply: Ok(Reply::Agents { agents, .. }), .. } => {
                    self.told = agents;
                }
                _ => {}
            }
        }
    }

    fn told(&mut self, at: usize) -> Vec<AgentSeen> {
        let peer = model::Peer {
            uid: 0,
            gid: 0,
            process: None,
            watchable: false,
            quota: Quota::default(),
        };
        self.told.clear();
        let page = Page { after: None, limit: 100 };
        self.keepers[at].handle_request(self.now, Ticket(1), peer, Request::Agents(page));
        self.drain(at);
        self.told.clone()
    }

    fn hosts(&mut self, at: usize) -> Vec<String> {
        self.told(at).iter().map(|agent| agent.host.to_string()).collect()
    }
}

#[test]
fn an_idle_agent_makes_one_call_each_time_it_makes_itself_known() {
    let mut agents = Agents::new(3);
    assert_eq!(agents.calls, 3, "at the start");
    agents.pass(SHOWN_EVERY * 20);
    assert_eq!(agents.calls, 3 * 21);
    // A store that is away is asked more often only at first, one that refuses seldom.
    agents.store = Store::Down;
    let before = agents.calls;
    agents.pass(SHOWN_EVERY * 20);
    let tries = (agents.calls - before) / 3;
    assert!((20..=31).contains(&tries), "{tries}");
    agents.store = Store::Denies;
    agents.pass(SHOWN_EVERY);
    let before = agents.calls;
    agents.pass(SHOWN_FOR);
    assert_eq!((agents.calls - before) / 3, 1);
}

#[test]
fn agents_tell_of_each_other_and_first_of_themselves() {
    let mut agents = Agents::new(2);
    assert_eq!(agents.hosts(0), ["host1", "host2"]);
    assert_eq!(agents.hosts(1), ["host2", "host1"]);
    agents.pass(Duration::from_secs(20));
    let told = agents.told(0);
    let ago: Vec<_> = told.iter().map(|agent| agent.ago.as_secs()).collect();
    assert_eq!(ago, [0, 20]);
    assert_eq!((told[0].facts.up_ms, told[1].facts.up_ms), (20_000, 0));
    // One that is killed is told of until its time is over.
    agents.keepers.pop();
    agents.pass(Duration::from_secs(400));
    assert_eq!(agents.told(0)[1].ago.as_secs(), 420);
    agents.pass(Duration::from_secs(180));
    assert_eq!(agents.hosts(0), ["host1"]);
}

#[test]
fn an_agent_that_stops_takes_its_leave_and_one_that_restarts_does_not() {
    let mut agents = Agents::new(3);
    agents.keepers[1].handle_restart(agents.now);
    agents.keepers[2].handle_stop(agents.now);
    assert!(!agents.keepers[2].stopped(), "the store is to be told");
    agents.pass(Duration::ZERO);
    assert!(agents.keepers[2].stopped());
    assert_eq!(agents.hosts(0), ["host1", "host2"]);
    // An agent stops as well if the store does not answer it, or never heard of it.
    agents.store = Store::Down;
    agents.keepers[0].handle_stop(agents.now);
    agents.pass(Duration::ZERO);
    assert!(agents.keepers[0].stopped());
    agents.store = Store::Denies;
    let now = agents.now;
    agents.keepers.push(agent(4, true, now));
    agents.pass(Duration::ZERO);
    agents.keepers[3].handle_stop(now);
    assert!(agents.keepers[3].stopped());
}

#[test]
fn an_agent_whom_nobody_else_can_see_asks_nobody() {
    let mut agents = Agents::new(0);
    let now = agents.now;
    agents.keepers.push(agent(1, false, now));
    agents.pass(SHOWN_FOR);
    assert_eq!((agents.hosts(0), agents.calls), (vec!["host1".to_owned()], 0));
    assert_eq!(agents.keepers[0].poll_timeout(), None);
}

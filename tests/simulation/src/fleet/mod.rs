//! Fleets of agents in one process, over a model of Redis, in simulated time.
//!
//! Each agent is the keeper, the turn, the driver and the chores that ship. The model charges for every command,
//! script and push what Redis is busy for, and counts: a scenario asserts counts, so it says the same on
//! every machine. The same scenario gives the same counts each time.

mod agent;
mod backend;
mod clock;
mod costs;
mod server;
mod worker;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Value, json};
use tenure::wire::Kind;
use tenure_core::keeper::{Refusal, Reply, Request, Ticket};
use tenure_core::time::Boottime;
use tenure_stores::remote::Hint;
use tokio::sync::oneshot;
use uuid::Uuid;

use self::agent::Agent;
use self::backend::{Asked, Said, Sent};
pub use self::server::Counts;
use self::server::{Outcome, Redis};
pub use self::worker::Worker;

/// The beginning of time.
const BEGIN: Boottime = Boottime::from_nanos(1_000_000_000_000);
/// From the instant at which something arrives at an agent to its turn.
const WAKES_AFTER: Duration = Duration::from_micros(50);
/// The way from an agent to the model in the same rack, or back.
pub const NEAR: Duration = Duration::from_micros(50);
/// Somebody looks this often how long the model takes to answer.
const PING_EVERY: Duration = Duration::from_millis(10);
/// An agent looks this often whether its connections live …
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// … with so many commands: PING and HELLO on each of four.
const COMMANDS_PER_CHECK: u32 = 8;
/// A reply takes no longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Wrong ways of Redis or of its agents, to see that scenarios notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Everybody is told of every change.
    Broadcast,
    /// Everybody hears the messages of every project and session.
    AllHear,
    /// Everybody is told of every change, and each agent looks after every semaphore that it hears of.
    AllCare,
    /// Exclusive kinds have no queue: everybody who waits claims whenever one of them is free.
    NoQueue,
}

enum Happening {
    /// A command reaches the model.
    Arrives(usize, Sent),
    /// An answer reaches its agent.
    Answered(usize, oneshot::Sender<Said>, Said),
    /// What an agent is told reaches it.
    Pushed(usize, Vec<Hint>),
    Turn(usize),
    /// A worker is done with what it holds.
    Done(usize),
    /// An agent's look at its connections.
    Check(usize),
    Ping,
    /// Something runs out.
    RunsOut,
}

/// Agents and their Redis.
pub struct Fleet {
    now: Boottime,
    queue: BTreeMap<(Boottime, u64), Happening>,
    next: u64,
    agents: Vec<Agent>,
    /// The way of each to the model, or back.
    one_way: Vec<Duration>,
    redis: Redis,
    replies: HashMap<Ticket, Result<Reply, Refusal>>,
    workers: Vec<Worker>,
    /// The calls of workers.
    working: HashMap<Ticket, usize>,
    works_until: Boottime,
    runs_out_at: Option<Boottime>,
    /// Their connections began on it, and nothing happens to them afterwards.
    _runtime: tokio::runtime::Runtime,
}

impl Fleet {
    /// So many agents, all of them near.
    pub fn new(agents: usize) -> Fleet {
        Fleet::with(&vec![NEAR; agents], None)
    }

    /// Agents that are so far away, one way.
    pub fn with(one_way: &[Duration], planted: Option<Planted>) -> Fleet {
        clock::set(BEGIN);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime");
        let cares = planted == Some(Planted::AllCare);
        let count = one_way.len();
        let agents = runtime.block_on(async {
            let agents = (0..count).map(|number| Agent::new(number, cares)).collect();
            // Until every task has made its connection.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            agents
        });
        let mut fleet = Fleet {
            now: BEGIN,
            queue: BTreeMap::new(),
            next: 0,
            agents,
            one_way: one_way.to_vec(),
            redis: Redis::new(count, planted),
            replies: HashMap::new(),
            workers: Vec::new(),
            working: HashMap::new(),
            works_until: BEGIN,
            runs_out_at: None,
            _runtime: runtime,
        };
        fleet.plan(BEGIN, Happening::Ping);
        for agent in 0..count {
            fleet.wake(agent);
            let first = CHECK_EVERY * u32::try_from(agent).expect("not so many") / 100;
            fleet.plan(BEGIN + first, Happening::Check(agent));
        }
        fleet.run_for(Duration::from_secs(1));
        fleet
    }

    /// How many agents there are.
    pub fn count(&self) -> usize {
        self.agents.len()
    }

    /// What the model has done so far.
    pub fn counts(&self) -> Counts {
        self.redis.counts.clone()
    }

    /// What it does within that time.
    pub fn counts_for(&mut self, time: Duration) -> Counts {
        let before = self.counts();
        self.run_for(time);
        self.counts().since(&before)
    }

    /// Holds that any agent lost.
    pub fn lost(&self) -> u64 {
        self.agents.iter().map(Agent::lost).sum()
    }

    /// The time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.now.since(BEGIN)
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= until) {
            self.step();
        }
        self.set_now(until);
    }

    /// A session of a program on that agent.
    pub fn register(&mut self, agent: usize, fields: &Value) -> Uuid {
        let mut with = json!({"tether": "process", "holds": 4095});
        with.as_object_mut()
            .expect("it is one")
            .extend(fields.as_object().cloned().unwrap_or_default());
        let register = serde_json::from_value(with).expect("fields of the wire");
        let ticket = self.say(agent, Request::Register(register, Default::default()));
        match self.reply(ticket) {
            Ok(Reply::Registered { session, .. }) => session.0,
            other => panic!("not registered: {other:?}"),
        }
    }

    /// Asks for a hold; see [`Fleet::reply`].
    pub fn acquire(
        &mut self,
        agent: usize,
        session: Uuid,
        kind: Kind,
        name: &str,
        wait: bool,
    ) -> Ticket {
        let fields = worker::acquire(session, kind, name, wait);
        self.say(
            agent,
            Request::Acquire(serde_json::from_value(fields).expect("fields of the wire")),
        )
    }

    /// Takes a hold that is free.
    pub fn take(&mut self, agent: usize, session: Uuid, kind: Kind, name: &str) -> Uuid {
        let ticket = self.acquire(agent, session, kind, name, false);
        match self.reply(ticket) {
            Ok(Reply::Acquired(acquired)) => acquired.hold,
            other => panic!("{kind} {name} was not granted: {other:?}"),
        }
    }

    /// Gives a hold back.
    pub fn release(&mut self, agent: usize, session: Uuid, hold: Uuid) {
        let fields = json!({"session": session, "hold": hold});
        let release = serde_json::from_value(fields).expect("fields of the wire");
        let ticket = self.say(agent, Request::Release(release));
        assert!(matches!(self.reply(ticket), Ok(Reply::Released(_))));
    }

    /// Waits for a reply.
    pub fn reply(&mut self, ticket: Ticket) -> Result<Reply, Refusal> {
        let until = self.now + PATIENCE;
        loop {
            if let Some(reply) = self.replies.remove(&ticket) {
                return reply;
            }
            assert!(self.now < until, "no reply within {PATIENCE:?}");
            self.step();
        }
    }

    /// The reply, if it has come.
    pub fn reply_so_far(&mut self, ticket: Ticket) -> Option<Result<Reply, Refusal>> {
        self.replies.remove(&ticket)
    }

    /// An agent stops, and releases all it has.
    pub fn stop(&mut self, agent: usize) {
        self.agents[agent].stop();
        self.wake(agent);
    }

    /// Workers get and give back the same thing again and again for that long.
    pub fn work(&mut self, workers: Vec<Worker>, time: Duration) -> &[Worker] {
        self.works_until = self.now + time;
        self.workers = workers;
        (0..self.workers.len()).for_each(|worker| self.ask_again(worker));
        self.run_for(time);
        &self.workers
    }

    fn say(&mut self, agent: usize, request: Request) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.agents[agent].say(ticket, request);
        self.wake(agent);
        ticket
    }

    fn plan(&mut self, at: Boottime, what: Happening) {
        self.next += 1;
        self.queue.insert((at, self.next), what);
    }

    fn set_now(&mut self, now: Boottime) {
        self.now = self.now.max(now);
        clock::set(self.now);
    }

    fn wake(&mut self, agent: usize) {
        self.turn_at(agent, self.now + WAKES_AFTER);
    }

    fn turn_at(&mut self, agent: usize, at: Boottime) {
        let planned = &mut self.agents[agent].planned;
        if planned.is_none_or(|planned| at < planned) {
            *planned = Some(at);
            self.plan(at, Happening::Turn(agent));
        }
    }

    fn step(&mut self) {
        let ((at, _), happening) = self.queue.pop_first().expect("agents always have a timer");
        self.set_now(at);
        match happening {
            Happening::Arrives(agent, Sent { asked, reply }) => self.arrives(agent, asked, reply),
            Happening::Answered(agent, reply, said) => {
                // A call that was given up waits no more.
                let _ = reply.send(said);
                self.wake(agent);
            }
            Happening::Pushed(agent, hints) => {
                hints.into_iter().for_each(|hint| self.agents[agent].ear.hear(hint));
                self.wake(agent);
            }
            Happening::Turn(agent) => {
                if self.agents[agent].planned == Some(at) {
                    self.turn(agent);
                }
            }
            Happening::Done(worker) => self.done(worker),
            Happening::Check(agent) => {
                self.redis.plain(at, COMMANDS_PER_CHECK);
                self.plan(at + CHECK_EVERY, Happening::Check(agent));
            }
            Happening::Ping => {
                self.redis.ping(at);
                self.plan(at + PING_EVERY, Happening::Ping);
            }
            Happening::RunsOut => {
                self.runs_out_at = None;
                let outcome = self.redis.handle_timeout(at);
                self.pushed(outcome.pushed_at, outcome.pushes);
            }
        }
        self.plan_expiry();
    }

    fn plan_expiry(&mut self) {
        let Some(due) = self.redis.due() else { return };
        if self.runs_out_at.is_none_or(|planned| due < planned) {
            self.runs_out_at = Some(due);
            self.plan(due.max(self.now), Happening::RunsOut);
        }
    }

    fn arrives(&mut self, agent: usize, asked: Asked, reply: oneshot::Sender<Said>) {
        let Outcome { said, answered_at, pushed_at, pushes } =
            self.redis.handle(self.now, agent, asked);
        if let Some(said) = said {
            let at = answered_at + self.one_way[agent];
            self.plan(at, Happening::Answered(agent, reply, said));
        }
        self.pushed(pushed_at, pushes);
    }

    fn pushed(&mut self, at: Boottime, pushes: BTreeMap<usize, Vec<Hint>>) {
        for (agent, hints) in pushes {
            self.plan(at + self.one_way[agent], Happening::Pushed(agent, hints));
        }
    }

    fn turn(&mut self, number: usize) {
        let agent = &mut self.agents[number];
        agent.planned = None;
        let replies = agent.run();
        let sent = std::mem::take(&mut *agent.outbox.borrow_mut());
        let due = agent.due();
        for sent in sent {
            self.plan(self.now + self.one_way[number], Happening::Arrives(number, sent));
        }
        if let Some(due) = due {
            self.turn_at(number, due);
        }
        for (ticket, reply) in replies {
            match self.working.remove(&ticket) {
                Some(worker) => self.heard(worker, reply),
                None => drop(self.replies.insert(ticket, reply)),
            }
        }
    }
}

//! A run: the loop, and who gets what.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tenure_core::keeper::{Reply, StreamId};
use tenure_core::model::{Answer, CallId, Change, Request};

use super::agent::Agent;
use super::client::Client;
use super::core::{
    Caller, Checks, Core, Findings, Happening, InOrder, Message, Origin, Phase, Report, Told,
};
use super::invariants::{Invariant, Violation};
use super::network;
use super::plan::{CROWD_PROGRAMS, Plan};
use super::planted::Planted;
use super::queue::Queue;
use super::random::Random;
use super::storage::Storage;
use super::time::{Clock, TrueTime};
use super::trace::Trace;
use super::upstream::Upstream;

/// A look at everything that waits, this often.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Programs that would not end are killed this long after they should have.
const LAST_ORDERS: Duration = Duration::from_secs(3);
/// More steps than this mean that something spins.
const STEPS_MAX: u64 = 5_000_000;

/// Options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// A fault built in on purpose.
    pub planted: Option<Planted>,
    /// Stop after so many steps.
    pub steps_max: Option<u64>,
    /// Keep the last lines.
    pub trace: bool,
    /// Print every line.
    pub print: bool,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// How many steps it had.
    pub steps: u64,
    /// How long it lasted in true time.
    pub ended_at: TrueTime,
    /// How many grants there were.
    pub grants: usize,
    /// Counts of events, by name.
    pub seen: BTreeMap<&'static str, u64>,
    /// A hash of everything that happened.
    pub hash: u64,
    /// The rule that was broken, if one was.
    pub violation: Option<Violation>,
    /// The last lines, if they were kept.
    pub lines: Vec<String>,
}

/// A run.
pub(super) struct World {
    pub(super) core: Core,
    pub(super) agents: Vec<Agent>,
    pub(super) clients: Vec<Client>,
    pub(super) upstream: Upstream,
    /// Requests that wait for an upstream that stands still.
    held_up: Vec<(Origin, CallId, Rc<Request>)>,
    pub(super) next_pid: u32,
    /// Streams that processes have inherited which never read, and how many events each still takes.
    pub(super) inherited: BTreeMap<StreamId, u64>,
}

/// A turn that takes longer is told apart from the lateness of other hosts, which stand still meanwhile.
const LONG_TURN: Duration = Duration::from_millis(10);

/// Runs a seed to its end, or to the first violation.
pub fn run(seed: u64, options: &Options) -> Outcome {
    let mut world = World::new(seed, options);
    world.begin();
    let steps_max = options.steps_max.unwrap_or(STEPS_MAX);
    while world.core.findings.violation.is_none() && world.core.step < steps_max {
        let Some((at, happening)) = world.core.queue.pop() else { break };
        // A turn takes a while, in which the others stand still.
        world.core.now = at.max(world.core.now);
        world.core.step += 1;
        world.core.trace.mix(at.as_nanos());
        if matches!(happening, Happening::Finish) {
            world.finish();
            break;
        }
        let from = world.core.now;
        let works = if let Happening::Turn(host) = happening { Some(host) } else { None };
        world.happen(happening);
        world.stood_still(from, works);
        world.core.judge_moments(world.upstream.moments());
    }
    if world.core.step >= STEPS_MAX {
        let what = format!("{STEPS_MAX} steps, and the run is not over");
        world.core.judge(Invariant::Bounded, Err(what));
    }
    let core = world.core;
    Outcome {
        seed,
        steps: core.step,
        ended_at: core.now,
        grants: core.checks.ledger.grants(),
        seen: core.findings.seen,
        hash: core.trace.hash(),
        violation: core.findings.violation,
        lines: core.trace.into_lines(),
    }
}

impl World {
    fn new(seed: u64, options: &Options) -> World {
        let mut random = Random::new(seed);
        let plan = Plan::draw(seed, &mut random, options.planted);
        let mut clock =
            |drift_ppm| Clock::new(random.number(1_000_000_000, 90_000_000_000_000), drift_ppm);
        let upstream_clock = clock(plan.drifts_ppm[0]);
        let storage = Storage::new(plan.disk_seed, options.planted);
        let mut agents: Vec<Agent> = plan.drifts_ppm[1..]
            .iter()
            .enumerate()
            .map(|(host, drift)| Agent::new(host, clock(*drift), storage.clone(), options.planted))
            .collect();
        if plan.embedded {
            // One that is not to be there: it has the directories of the first.
            let clock = agents[0].machine.clock;
            agents.push(Agent::new(agents.len(), clock, storage, options.planted));
        }
        let upstream = Upstream::new(upstream_clock);
        let mut clients: Vec<_> =
            (0..plan.hosts * plan.clients).map(|id| Client::new(id, id % plan.hosts)).collect();
        if plan.crowd > 0 {
            let first = clients.len();
            let members = (first..first + CROWD_PROGRAMS).map(|id| Client {
                waits_wanted: plan.crowd / CROWD_PROGRAMS,
                ..Client::new(id, 0)
            });
            clients.extend(members);
        }
        let trace = Trace::new(options.trace || options.print, options.print);
        let core = Core {
            now: TrueTime::default(),
            step: 0,
            phase: Phase::Storm,
            random,
            queue: Queue::default(),
            trace,
            checks: Checks::default(),
            plan,
            findings: Findings::default(),
            next_number: 1,
            told: InOrder::default(),
            said: InOrder::default(),
        };
        World {
            core,
            agents,
            clients,
            upstream,
            held_up: Vec::new(),
            next_pid: 100,
            inherited: BTreeMap::new(),
        }
    }

    fn begin(&mut self) {
        let core = &mut self.core;
        let plan = core_plan_line(&core.plan);
        core.line(|| plan);
        for host in 0..self.core.plan.hosts {
            self.core.queue.push(TrueTime::default(), Happening::Start(host));
        }
        for client in 0..self.clients.len() {
            let after = self.core.random.ms(1, 600);
            self.core.after(after, Happening::Reborn(client));
        }
        let (storm, calm, settle) =
            (self.core.plan.storm, self.core.plan.calm, self.core.plan.settle);
        self.core.after(self.core.plan.trouble_every, Happening::Trouble);
        self.core.after(storm, Happening::Calm);
        self.core.after(LOOK_EVERY, Happening::Look);
        self.core.after(storm + calm, Happening::Farewell);
        self.core.after(storm + calm + LAST_ORDERS, Happening::LastOrders);
        self.core.after(storm + calm + settle, Happening::Finish);
    }

    /// A long turn of one host, as when an agent with thousands of calls stops, is no fault of the others.
    fn stood_still(&mut self, from: TrueTime, works: Option<usize>) {
        let to = self.core.now;
        if to.since(from) < LONG_TURN {
            return;
        }
        for agent in self.agents.iter().filter(|agent| Some(agent.host) != works) {
            let clock = agent.machine.clock;
            self.core.checks.beats.interrupted(agent.host, clock.at(from), clock.at(to));
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Turn(host) => {
                self.agents[host].turn(&mut self.core, &mut self.upstream);
            }
            Happening::Thaw(host) => self.agents[host].thaw(&mut self.core),
            Happening::Start(host) => self.agents[host].start(&mut self.core, &mut self.upstream),
            Happening::StopDeadline(host, incarnation) => {
                let agent = &mut self.agents[host];
                if agent.life.incarnation == incarnation && agent.is_up() {
                    agent.end(&mut self.core, &mut self.upstream);
                }
            }
            Happening::Exited(host, incarnation, session) => {
                let agent = &mut self.agents[host];
                if agent.life.incarnation == incarnation && agent.is_up() {
                    agent.receive_exit(&mut self.core, session);
                }
            }
            Happening::ToAgent(host, sender, message) => {
                self.deliver_to_agent(host, sender, message)
            }
            Happening::ToClient(client, life, told) => self.deliver_to_client(client, life, told),
            Happening::Think(client, thought) => {
                let client = &mut self.clients[client];
                if client.process.thoughts == thought {
                    let host = client.host;
                    client.think(&mut self.core, &self.agents[host]);
                }
            }
            Happening::ClientThaw(client) => self.thaw_client(client),
            Happening::Reborn(client) => self.give_birth(client),
            Happening::ToUpstream(sender, call, request) => {
                if !self.upstream.frozen {
                    self.answer(sender, call, &request);
                } else {
                    self.held_up.push((sender, call, request));
                }
            }
            Happening::FromUpstream(host, incarnation, report) => {
                let agent = &mut self.agents[host];
                if agent.life.incarnation == incarnation && agent.is_up() {
                    agent.receive_report(&mut self.core, report);
                }
            }
            Happening::UpstreamTurn => self.upstream_turn(),
            Happening::UpstreamThaw => self.thaw_upstream(),
            Happening::Mended(host, generation) => self.mend(host, generation),
            Happening::DiskWell(host, ails) => self.agents[host].machine.recover(ails),
            Happening::Trouble => self.trouble(),
            Happening::Look => self.look(),
            Happening::Calm => self.calm(),
            Happening::Farewell => self.farewell(),
            Happening::LastOrders => self.last_orders(),
            Happening::Finish => {}
        }
    }

    fn deliver_to_agent(&mut self, host: usize, sender: Caller, message: Message) {
        if let Message::CloseStream(stream) = &message {
            self.inherited.remove(stream);
            self.core.checks.tied.closed(self.core.now, *stream);
        }
        let agent = &mut self.agents[host];
        if agent.is_up() {
            agent.receive(&mut self.core, sender, message);
        } else {
            Agent::refuse(&mut self.core, sender, message);
        }
    }

    fn deliver_to_client(&mut self, id: usize, life: u64, told: Told) {
        let client = &mut self.clients[id];
        let host = client.host;
        if !client.process.alive || client.process.life != life {
            if let Told::Reply(_, reply) = &told
                && self.agents[host].is_up()
            {
                self.agents[host].unread(&mut self.core, reply.as_ref().ok());
            }
            if let Told::Event(stream, _) = &told
                && let Some(room) = self.inherited.get_mut(stream)
            {
                match room.checked_sub(1) {
                    Some(left) => *room = left,
                    None => {
                        self.agents[host].fill(&mut self.core, (id, life), *stream);
                    }
                }
            }
            return;
        }
        if let Told::Reply(ticket, Ok(Reply::Acquired(_))) = &told
            && self.core.random.per_mille(15)
        {
            // It gives up at this very instant.
            client.requests.asked.remove(ticket);
        }
        let cut_off = client.hear(&mut self.core, told);
        self.return_unread(id);
        if let Some(stream) = cut_off {
            // When it goes on, it reads what there is, and then the end of the stream.
            let is_open = self.agents[host].fill(&mut self.core, (id, life), stream);
            let client = &mut self.clients[id];
            let is_end = |told: &Told| matches!(told, Told::Closed(of, _) if *of == stream);
            if !is_open {
                client.stream = None;
            } else if !client.backlog.iter().any(is_end) {
                client.backlog.push_back(Told::Closed(stream, None));
            }
        }
    }

    /// Returns answers for which a program did not wait any more.
    pub(super) fn return_unread(&mut self, id: usize) {
        let client = &mut self.clients[id];
        for reply in std::mem::take(&mut client.unread) {
            let agent = &mut self.agents[client.host];
            if agent.is_up() {
                agent.unread(&mut self.core, Some(&reply));
            }
        }
    }

    fn answer(&mut self, (host, incarnation, life): Origin, call: CallId, request: &Request) {
        if life != self.upstream.life {
            // The connection broke when the upstream went down.
            return;
        }
        self.core.line(|| format!("upstream: host {host} asks {call:?} {request:?}"));
        let (answer, changes) = self.upstream.call(&mut self.core, request.clone());
        self.reply(host, incarnation, call, answer);
        self.tell(changes);
        self.upstream.plan_turn(&mut self.core);
    }

    fn reply(&mut self, host: usize, incarnation: u64, call: CallId, answer: Answer) {
        if !self.agents[host].link.back {
            return;
        }
        let weather = self.core.weather();
        let (at, epoch) = (self.upstream.clock(&self.core), self.upstream.epoch);
        let report = Report::Answer { call, answer, at, epoch };
        if let Some(delay) = network::reply(&mut self.core.random, &weather) {
            self.core.after(delay, Happening::FromUpstream(host, incarnation, report));
        }
    }

    /// Tells every agent.
    pub(super) fn tell(&mut self, mut changes: Vec<Change>) {
        if self.core.plan.embedded || self.core.has(Planted::NoHints) {
            return;
        }
        if self.core.has(Planted::LostPublication) {
            changes.retain(|it| !matches!(it, Change::Granted { .. } | Change::Resource(_)));
        }
        let weather = self.core.weather();
        for agent in &self.agents {
            if !agent.link.back || !agent.is_up() {
                continue;
            }
            for change in &changes {
                for delay in network::hint(&mut self.core.random, &weather) {
                    let report =
                        Report::Change { change: change.clone(), epoch: self.upstream.epoch };
                    let happening =
                        Happening::FromUpstream(agent.host, agent.life.incarnation, report);
                    self.core.after(delay, happening);
                }
            }
        }
    }

    /// The upstream goes on, and finds what has come meanwhile.
    pub(super) fn thaw_upstream(&mut self) {
        self.upstream.frozen = false;
        for (sender, call, request) in std::mem::take(&mut self.held_up) {
            let after = self.core.random.us(0, 2000);
            self.core.after(after, Happening::ToUpstream(sender, call, request));
        }
        self.upstream.plan_turn(&mut self.core);
    }

    pub(super) fn upstream_turn(&mut self) {
        let core = &mut self.core;
        if core.plan.embedded || self.upstream.frozen {
            return;
        }
        if self.upstream.due().is_some_and(|due| due <= core.now) {
            let changes = self.upstream.handle_timeout(core);
            self.tell(changes);
        }
        self.upstream.plan_turn(&mut self.core);
    }
}

fn core_plan_line(plan: &Plan) -> String {
    format!(
        "{} hosts with {} programs each, embedded: {}, drifts {:?} ppm, {:?}, {:?}, {:?}",
        plan.hosts,
        plan.clients,
        plan.embedded,
        plan.drifts_ppm,
        plan.weather,
        plan.troubles,
        plan.settings
    )
}

//! A run: hosts, programs and trouble, all drawn from one seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tenure_cluster::disk::Disk as _;
use tenure_cluster::machine::VERSION;
use tenure_cluster::node::{Node, Unchanged};
use tenure_core::engine::EngineSettings;
use tenure_core::model::{Answer, ClaimAnswer};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::chance::Random;
use crate::host::Host;
use crate::invariants::Invariants;
use crate::network::Net;
use crate::program::{Program, THINGS, claim};

const HOSTS: usize = 4;
/// Those that vote most of the time; the other one waits to take a place.
const VOTERS: usize = 3;
const PROGRAMS: usize = 8;
const STEP_US: u64 = 2_000;
/// How long there is trouble.
const TROUBLE_US: u64 = 60_000_000;
/// After so long without trouble all must be well: an election, and the longest ttl.
const CALM_US: u64 = 30_000_000;
/// In the end all nodes have applied the same after so long.
const ALIKE_US: u64 = 2_000_000;
const FOUNDING_US: u64 = 30_000_000;
/// That of FNV-1a.
const HASH_PRIME: u64 = 0x0100_0000_01b3;
const TRACE_MAX: usize = 60;
/// Some programs know this version of the machine's rules.
const LATER: u32 = VERSION + 1;

/// A fault that is planted on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Disks say that a write is synced before it is.
    EarlySync,
    /// A host comes back with its id, and with nothing on its disk.
    WipedDisk,
}

impl Fault {
    pub(crate) const ALL: [Fault; 2] = [Fault::EarlySync, Fault::WipedDisk];
}

/// What came of a run.
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// The same for each run of a seed.
    pub(crate) hash: u64,
    pub(crate) violation: Option<String>,
    pub(crate) trace: VecDeque<String>,
}

struct World {
    now_us: u64,
    random: Random,
    net: Net,
    hosts: Vec<Host>,
    /// The instants at which hosts that are away come back.
    back_us: Vec<Option<u64>>,
    moving: Option<Move>,
    programs: Vec<Program>,
    known: Invariants,
    fault: Option<Fault>,
    counts: BTreeMap<&'static str, u64>,
    trace: VecDeque<String>,
    hash: u64,
}

/// A change of the members that is under way.
struct Move {
    host: usize,
    joins: bool,
    done: oneshot::Receiver<Result<(), Unchanged>>,
}

/// Runs a seed. The thread must be new: it has asked the system for no chance yet.
pub(crate) fn run(seed: u64, fault: Option<Fault>) -> Outcome {
    let mut random = Random::new(seed);
    let net = Net::new(Random::of(random.number(0, u64::MAX - 1)), 0);
    let lies = fault == Some(Fault::EarlySync);
    let hosts = (0..HOSTS).map(|number| Host::new(number, &net, &mut random, lies)).collect();
    let programs = (0..PROGRAMS).map(|_| Program::new(&mut random)).collect();
    let mut world = World {
        now_us: 0,
        random,
        net,
        hosts,
        back_us: vec![None; HOSTS],
        moving: None,
        programs,
        known: Invariants::default(),
        fault,
        counts: BTreeMap::new(),
        trace: VecDeque::new(),
        hash: 0,
    };
    world.found();
    if world.known.violation.is_none() {
        world.trouble();
    }
    if world.known.violation.is_none() {
        world.calm();
    }
    let World { counts, trace, hash, known, hosts, .. } = world;
    drop(hosts);
    let mut counts = counts;
    let told = [
        ("grants", known.grants),
        ("revocations", known.revocations),
        ("answers", known.answered),
        ("lost answers", known.unanswered),
    ];
    counts.extend(told);
    Outcome { seed, counts, hash, violation: known.violation, trace }
}

impl World {
    fn tell(&mut self, what: &'static str, more: String) {
        *self.counts.entry(what).or_default() += 1;
        let line = format!("{:>9.3} {what} {more}", self.now_us as f64 / 1e6);
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(HASH_PRIME);
        }
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    fn pass(&mut self) {
        self.now_us += STEP_US;
        self.net.pass(self.now_us);
        for host in &mut self.hosts {
            host.pass(self.now_us, STEP_US);
        }
        for number in 0..HOSTS {
            let Some(view) = self.hosts[number].view() else { continue };
            self.known.became(number, view.applied, view.digest.0);
            self.hash = (self.hash ^ view.applied ^ view.digest.0).wrapping_mul(HASH_PRIME);
            if let Some(cause) = self.hosts[number].node().and_then(Node::halted) {
                self.known.broke(format!("node {number} has stopped: {cause}"));
            }
        }
    }

    /// Founds the cluster, while nothing goes wrong.
    fn found(&mut self) {
        for host in &mut self.hosts {
            host.start();
        }
        let first = self.hosts[0].node().cloned().expect("it runs");
        let others: Vec<_> =
            (1..VOTERS).map(|it| (self.hosts[it].disk.id(), Net::address(it))).collect();
        let mut founded = self.hosts[0].spawn(async move {
            first.found(Net::address(0), 1_000, EngineSettings::default(), None).await?;
            for (id, address) in others {
                first.add(id, address).await.map_err(std::io::Error::other)?;
            }
            std::io::Result::Ok(())
        });
        while self.now_us < FOUNDING_US {
            self.pass();
            if let Ok(done) = founded.try_recv() {
                done.expect("it is founded");
                return self.tell("founded", String::new());
            }
        }
        self.known.broke("the cluster was not founded".to_owned());
    }

    /// Programs run, and things go wrong.
    fn trouble(&mut self) {
        let end_us = self.now_us + TROUBLE_US;
        let loss = self.random.number(0, 20);
        self.net.lose(loss);
        let mut next_us = self.now_us;
        while self.now_us < end_us && self.known.violation.is_none() {
            self.pass();
            if self.now_us >= next_us {
                self.strike();
                next_us = self.now_us + self.random.number(200_000, 6_000_000);
            }
            self.come_back(false);
            self.end_move();
            self.run_programs();
        }
    }

    fn run_programs(&mut self) {
        for at in 0..PROGRAMS {
            self.programs[at].hear(self.now_us, &mut self.random, &mut self.known);
            let Some(ask) = self.programs[at].ask(self.now_us, &mut self.random) else { continue };
            let host = self.member();
            let reply = self.hosts[host].ask(ask.request.clone());
            let is_lost = self.random.per_mille(30);
            let program = &mut self.programs[at];
            ask.sent_by(program, reply, self.now_us, is_lost, &mut self.known);
        }
        if self.known.violation.is_some() {
            self.tell("violation", String::new());
        }
    }

    /// Something goes wrong.
    fn strike(&mut self) {
        let host = self.random.index(HOSTS);
        let (from, to) = (host, (host + 1 + self.random.index(HOSTS - 1)) % HOSTS);
        match self.random.below(13) {
            0 | 1 => self.end(host, false),
            2 => self.end(host, true),
            3 if self.random.per_mille(300) => {
                let is_dark = self.random.per_mille(500);
                (0..HOSTS).for_each(|host| self.end(host, is_dark));
            }
            4 if self.hosts[host].runs() => {
                self.hosts[host].sleep();
                self.away(host, "sleeps");
            }
            5 if self.hosts[host].runs() => {
                self.hosts[host].stop(self.now_us);
                self.away(host, "is stopped");
            }
            6 => {
                let others = (0..HOSTS).filter(|other| *other != host);
                let blocked = others.flat_map(|other| [(host, other), (other, host)]).collect();
                self.part("apart", host, blocked);
            }
            7 => self.part("one way", host, BTreeSet::from([(from, to)])),
            8 => self.part("a bridge", host, BTreeSet::from([(from, to), (to, from)])),
            9 => self.part("whole", host, BTreeSet::new()),
            10 | 11 => self.begin_move(),
            _ => {
                self.net.cut(host);
                self.tell("cut", format!("host {host}"));
            }
        }
    }

    fn part(&mut self, what: &'static str, host: usize, blocked: BTreeSet<(usize, usize)>) {
        self.tell(what, format!("host {host}: {blocked:?}"));
        self.net.block(blocked);
    }

    /// A node that programs know of: it has heard of a cluster, or is away.
    fn member(&mut self) -> usize {
        let heard = |host: &Host| host.view().is_none_or(|view| view.cluster.is_some());
        let members: Vec<_> = (0..HOSTS).filter(|it| heard(&self.hosts[*it])).collect();
        let chosen = self.random.index(members.len());
        members.get(chosen).copied().unwrap_or(0)
    }

    /// One more is to vote; or if one more does, one is to leave.
    fn begin_move(&mut self) {
        let leader = (0..HOSTS).find(|host| self.hosts[*host].leads());
        let (None, Some(leader)) = (&self.moving, leader) else { return };
        let node = self.hosts[leader].node().cloned().expect("it runs");
        let voters = self.hosts[leader].view().expect("it runs").voters;
        let votes = |host: &usize| voters.contains_key(&self.hosts[*host].disk.id());
        let joins = voters.len() == VOTERS;
        let those: Vec<_> = (0..HOSTS).filter(|host| votes(host) != joins).collect();
        let host = those[self.random.index(those.len())];
        let id = self.hosts[host].disk.id();
        let done = self.hosts[leader].spawn(async move {
            if joins { node.add(id, Net::address(host)).await } else { node.remove(id).await }
        });
        self.moving = Some(Move { host, joins, done });
        self.tell(if joins { "joins" } else { "leaves" }, format!("host {host}"));
    }

    /// A node that has left for certain is another one from now on.
    fn end_move(&mut self) {
        let Some(Move { host, joins, done }) = &mut self.moving else { return };
        let (host, joins) = (*host, *joins);
        let what = match done.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => return,
            Ok(Ok(())) if joins => "has joined",
            Ok(Ok(())) => {
                self.back_us[host] = None;
                self.hosts[host].replace(&mut self.random);
                "has left"
            }
            Ok(Err(_)) | Err(oneshot::error::TryRecvError::Closed) => "is unsure",
        };
        self.moving = None;
        self.tell(what, format!("host {host}"));
    }

    /// Its process is killed, or its host loses its power.
    fn end(&mut self, host: usize, is_dark: bool) {
        if self.hosts[host].node().is_none() {
            return;
        }
        self.hosts[host].kill(&mut self.random, is_dark);
        if is_dark && self.fault == Some(Fault::WipedDisk) {
            self.hosts[host].disk.wipe();
        }
        self.away(host, if is_dark { "power cut" } else { "killed" });
    }

    fn away(&mut self, host: usize, what: &'static str) {
        let back_us = self.now_us + self.random.number(50_000, 6_000_000);
        self.back_us[host] = Some(back_us);
        self.tell(what, format!("host {host}, back at {:.3}", back_us as f64 / 1e6));
    }

    fn come_back(&mut self, all: bool) {
        for host in 0..HOSTS {
            if self.back_us[host].is_some_and(|at| all || at <= self.now_us) {
                self.back_us[host] = None;
                match self.hosts[host].node() {
                    Some(_) => self.hosts[host].wake(self.now_us),
                    None => self.start_again(host),
                }
                self.tell("back", format!("host {host}"));
            }
        }
    }

    /// Starts its process again, now and then with a later program.
    fn start_again(&mut self, host: usize) {
        let is_upgraded = self.hosts[host].known == VERSION && self.random.per_mille(250);
        if is_upgraded {
            self.hosts[host].known = LATER;
            self.tell("upgraded", format!("host {host}"));
        }
        self.hosts[host].start();
    }

    /// Nothing goes wrong any more, and programs are silent: what they had ends, and all nodes become the same.
    fn calm(&mut self) {
        self.net.block(BTreeSet::new());
        self.net.lose(0);
        self.come_back(true);
        self.tell("calm", String::new());
        let end_us = self.now_us + CALM_US;
        while self.now_us < end_us && self.known.violation.is_none() {
            self.pass();
            self.end_move();
        }
        let leader = self.hosts.iter().find(|host| host.leads()).and_then(Host::view);
        let Some(voters) = leader.map(|leader| leader.voters) else {
            return self.known.broke("nobody leads in the end".to_owned());
        };
        let leader = self.hosts.iter().find(|host| host.leads()).and_then(Host::node);
        let members = leader.map(Node::members).unwrap_or_default();
        let votes = |host: &usize| voters.contains_key(&self.hosts[*host].disk.id());
        let voters: Vec<_> = (0..HOSTS).filter(votes).collect();
        for host in voters.iter().copied() {
            for thing in 0..THINGS.len() {
                let id = Uuid::from_u64_pair(thing as u64, host as u64 + 1);
                self.claim_alone(host, thing, id);
            }
        }
        let end_us = self.now_us + ALIKE_US;
        while !self.are_alike(&voters) {
            if self.now_us > end_us {
                let views: Vec<_> = self.hosts.iter().map(Host::view).collect();
                return self.known.broke(format!("nodes are not alike in the end: {views:?}"));
            }
            self.pass();
        }
        let is_member = |host: &&Host| members.contains_key(&host.disk.id());
        let known = self.hosts.iter().filter(is_member).map(|host| host.known).min();
        let versions: Vec<_> = voters
            .iter()
            .map(|host| self.hosts[*host].view().and_then(|view| view.version))
            .collect();
        if versions.iter().any(|version| *version != known) {
            self.known.broke(format!("all know version {known:?}, and nodes go by {versions:?}"));
        }
    }

    fn are_alike(&self, voters: &[usize]) -> bool {
        let view = |host: usize| self.hosts[host].view();
        let became = |host: usize| view(host).map(|it| (it.applied, it.digest.0));
        voters.iter().all(|host| became(*host) == became(voters[0]))
    }

    /// Claims what nobody has any more, and gives it back.
    fn claim_alone(&mut self, host: usize, thing: usize, id: Uuid) {
        let ttl = Duration::from_secs(1);
        let got = self.answer(host, claim(id, thing, ttl, false));
        if !matches!(got, Some(Ok(Answer::Claim(ClaimAnswer::Held { .. })))) {
            let name = THINGS[thing].1;
            self.known.broke(format!("nobody has {name}, and host {host} says {got:?}"));
        }
        let claim = tenure_core::model::ClaimId(id);
        let resource = crate::program::resource(thing);
        self.answer(host, tenure_core::model::Request::Release { claim, resource });
    }

    fn answer(
        &mut self,
        host: usize,
        request: tenure_core::model::Request,
    ) -> Option<Result<Answer, tenure_core::model::Failure>> {
        let mut reply = self.hosts[host].ask(request);
        for _ in 0..5_000_000 / STEP_US {
            self.pass();
            if let Ok(answer) = reply.try_recv() {
                return Some(answer);
            }
        }
        None
    }
}

//! Things go wrong, and right again.

use tenure_core::model::{Request, Resource};

use super::core::{Happening, Phase, Report};
use super::plan::Trouble;
use super::storage::{Ailment, Place};
use super::world::World;

impl World {
    /// Something goes wrong.
    pub(super) fn trouble(&mut self) {
        if self.core.phase != Phase::Storm {
            return;
        }
        let every = self.core.plan.trouble_every;
        let after = self.core.random.between(every / 4, every * 2);
        self.core.after(after, Happening::Trouble);
        if self.core.plan.troubles.is_empty() {
            return;
        }
        let trouble = *self.core.random.pick(&self.core.plan.troubles);
        let host = self.core.random.below(self.core.plan.hosts as u64) as usize;
        let client = self.core.random.below(self.clients.len() as u64) as usize;
        self.core.line(|| format!("trouble: {trouble:?}"));
        self.core.seen(trouble.as_str());
        match trouble {
            Trouble::AgentPause => {
                if self.agents[host].is_up() && self.agents[host].freeze(&mut self.core) {
                    let after = self.core.random.ms(5, 3000);
                    self.core.after(after, Happening::Thaw(host));
                }
            }
            Trouble::AgentCrash => self.agents[host].crash(&mut self.core),
            Trouble::AgentCrashAtCommit => self.agents[host].life.crash_at_commit = true,
            Trouble::AgentStop => {
                if !self.agents[host].life.frozen {
                    self.agents[host].stop(&mut self.core, &mut self.upstream);
                }
            }
            Trouble::AgentRestart => {
                if !self.agents[host].life.frozen {
                    self.agents[host].restart(&mut self.core, &mut self.upstream);
                }
            }
            Trouble::JournalLoss => {
                self.agents[host].lose_journal(&mut self.core);
            }
            Trouble::ClientKill => {
                self.kill(client);
                let after = self.core.random.ms(20, 2000);
                self.core.after(after, Happening::Reborn(client));
            }
            Trouble::ClientPause => self.hold_up(client, true),
            Trouble::ClientHang => self.hold_up(client, false),
            Trouble::Sleep => self.sleep(host),
            Trouble::UpstreamPause => {
                if !self.core.plan.embedded && !self.upstream.frozen {
                    self.upstream.frozen = true;
                    let after = self.core.random.ms(20, 4000);
                    self.core.after(after, Happening::UpstreamThaw);
                }
            }
            Trouble::UpstreamRestart => {
                if !self.core.plan.embedded {
                    self.upstream.restart(&mut self.core);
                    self.upstream_came_back();
                }
            }
            Trouble::UpstreamReset => {
                if !self.core.plan.embedded {
                    let quarantine = self.core.random.per_mille(400);
                    self.upstream.reset(&mut self.core, quarantine);
                    self.upstream_came_back();
                }
            }
            Trouble::Partition => self.cut(host),
            Trouble::WallStep => {
                let us = self.core.random.below(1_000_000_000_000);
                self.upstream.step_wall_clock(us);
                self.agents[host].machine.storage.step_wall_clock(us);
            }
            Trouble::Revoke => self.revoke(),
            Trouble::DiskFull => self.ail(host, Ailment::Full),
            Trouble::DiskBroken => self.ail(host, Ailment::Broken),
            Trouble::DiskErrors => {
                let count = self.core.random.number(1, 3) as u32;
                self.ail(host, Ailment::Errors(count));
            }
            Trouble::DiskSlow => {
                let by = self.core.random.ms(20, 3000);
                self.ail(host, Ailment::Slow(by));
            }
            Trouble::DiskDamage => {
                let place = *self.core.random.pick(&[Place::Runtime, Place::Runtime, Place::State]);
                self.agents[host].machine.storage.damage(place);
            }
            Trouble::PowerLoss => self.lose_power(host),
            Trouble::SecondAgent => {
                if self.agents[host].is_up() {
                    self.agents[1].start(&mut self.core, &mut self.upstream);
                    self.core.seen("second agent tried");
                }
            }
        }
    }

    /// A program is stopped, or hangs, for a while.
    fn hold_up(&mut self, client: usize, stopped: bool) {
        let client = &mut self.clients[client];
        if client.process.hold_up(stopped) {
            let client = client.id;
            let after = self.core.random.ms(20, 4000);
            self.core.after(after, Happening::ClientThaw(client));
        }
    }

    /// Something is wrong with the disks of a host, for a while.
    fn ail(&mut self, host: usize, ailment: Ailment) {
        let place = *self.core.random.pick(&[Place::Runtime, Place::State]);
        self.core.line(|| format!("host {host}: {ailment:?} {place:?}"));
        let agent = &mut self.agents[host];
        let ails = agent.machine.ail(place, ailment);
        let lasts = self.core.random.ms(20, 4000);
        self.core.after(lasts, Happening::DiskWell(host, ails));
    }

    /// A machine loses its power, with all that runs on it.
    fn lose_power(&mut self, host: usize) {
        if self.agents[host].life.frozen {
            return;
        }
        for client in 0..self.clients.len() {
            self.kill(client);
            let after = self.core.random.ms(20, 2000);
            self.core.after(after, Happening::Reborn(client));
        }
        for agent in &mut self.agents {
            agent.lose_power(&mut self.core);
        }
    }

    /// The faults stop: everything that was held up goes on.
    pub(super) fn calm(&mut self) {
        self.core.phase = Phase::Calm;
        self.core.line(|| "the faults stop".to_owned());
        if self.upstream.frozen {
            self.thaw_upstream();
        }
        for host in 0..self.agents.len() {
            self.agents[host].life.crash_at_commit = false;
            let process = self.agents[host].life.process;
            self.agents[host].machine.storage.die_at(process, None);
            self.agents[host].machine.storage.heal();
            self.agents[host].thaw(&mut self.core);
            let generation = self.agents[host].link.generation;
            if !self.agents[host].link.works() {
                self.mend(host, generation);
            }
        }
        for client in 0..self.clients.len() {
            self.thaw_client(client);
            self.give_birth(client);
        }
    }

    /// The machine sleeps: its clock goes on, and nothing else.
    fn sleep(&mut self, host: usize) {
        if !self.agents[host].freeze(&mut self.core) {
            return;
        }
        self.agents[host].life.slept = self.agents[host].is_up();
        let lasts = self.core.random.ms(100, 8000);
        self.core.after(lasts, Happening::Thaw(host));
        for client in self.clients.iter_mut().filter(|it| it.host == host && it.process.alive) {
            if !client.process.frozen {
                client.process.frozen = true;
                let later = lasts + self.core.random.us(0, 500);
                self.core.after(later, Happening::ClientThaw(client.id));
            }
        }
    }

    fn cut(&mut self, host: usize) {
        if self.core.plan.embedded {
            return;
        }
        let link = &mut self.agents[host].link;
        let way = self.core.random.below(4);
        link.there = way == 1;
        link.back = way == 2;
        link.generation += 1;
        let generation = link.generation;
        let after = self.core.random.ms(50, 6000);
        self.core.after(after, Happening::Mended(host, generation));
    }

    /// The link works again; the feed is connected anew a little later.
    pub(super) fn mend(&mut self, host: usize, generation: u64) {
        let agent = &mut self.agents[host];
        if agent.link.generation != generation {
            return;
        }
        agent.link.there = true;
        agent.link.back = true;
        self.core.line(|| format!("host {host} reaches the upstream again"));
        self.connect(host);
    }

    fn upstream_came_back(&mut self) {
        for host in 0..self.agents.len() {
            if self.agents[host].link.works() {
                self.connect(host);
            }
        }
        self.upstream.plan_turn(&mut self.core);
    }

    fn connect(&mut self, host: usize) {
        if self.core.has(super::planted::Planted::NoHints) {
            return;
        }
        let report = Report::Connected(self.upstream.epoch);
        let after = self.core.random.ms(1, 300);
        let incarnation = self.agents[host].life.incarnation;
        self.core.after(after, Happening::FromUpstream(host, incarnation, report));
    }

    /// An administrator takes something away, past every agent.
    fn revoke(&mut self) {
        let resources: Vec<Resource> = self.upstream.resources();
        if resources.is_empty() || self.upstream.frozen || self.core.plan.embedded {
            return;
        }
        let resource = self.core.random.pick(&resources).clone();
        let request = Request::Revoke { resource, token: None, revocation: None };
        let (_, changes) = self.upstream.call(&mut self.core, request);
        self.tell(changes);
        self.upstream.plan_turn(&mut self.core);
    }
}

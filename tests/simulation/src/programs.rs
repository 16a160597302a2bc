//! Programs begin, are killed, go on after a pause, and end.

use tenure::wire::Tether;
use tenure_core::keeper::Process;
use tenure_core::model::ClaimId;

use super::client::{Asked, Asking};
use super::core::{Happening, Message, Phase, Told};
use super::world::World;

impl World {
    pub(super) fn give_birth(&mut self, id: usize) {
        let client = &mut self.clients[id];
        if client.process.alive || self.core.phase == Phase::Farewell {
            return;
        }
        if self.core.plan.embedded {
            // A program that is started late may reach the second agent, if there is one.
            let host = id % self.agents.len();
            client.host = if self.agents[host].is_up() { host } else { 0 };
        }
        self.next_pid += 1;
        let process = Process { pid: self.next_pid, start_ticks: self.core.step };
        client.process.begin(process, self.core.random.per_mille(850));
        self.agents[client.host].machine.processes.insert(process.pid);
        self.core.line(|| format!("client {id}: process {} begins", process.pid));
        let agent = &self.agents[client.host];
        client.think(&mut self.core, agent);
    }

    pub(super) fn kill(&mut self, id: usize) {
        let client = &mut self.clients[id];
        if !client.process.alive {
            return;
        }
        self.core.line(|| format!("client {id}: is killed"));
        let host = client.host;
        let guarded = client.session.as_ref().is_some_and(|session| session.guarded);
        let is_tether = client.session.as_ref().is_some_and(|it| it.tether == Tether::Connection);
        if let Some(stream) = client.stream.take() {
            let message = Message::CloseStream(stream);
            if guarded && self.core.random.per_mille(500) {
                // A child has inherited the stream, and goes on for a while.
                let after = self.core.random.ms(10, 6000);
                let leaves = |asked: &Asked| matches!(asked.what, Asking::Release(None));
                if is_tether && !client.requests.asked.values().any(leaves) {
                    // Work begins with the answer, not with an event that comes before it.
                    let held = client.holds.iter().filter(|(_, hold)| hold.held && hold.answered);
                    let held: Vec<_> = held.map(|(id, _)| ClaimId(*id)).collect();
                    self.core.checks.tied.relies(host, stream, &held);
                }
                self.inherited.insert(stream, self.core.random.below(10));
                self.core.seen("stream inherited");
                self.core
                    .after(after, Happening::ToAgent(host, (id, client.process.life), message));
            } else {
                self.core.say(host, (id, client.process.life), message);
            }
        }
        for (ticket, _) in std::mem::take(&mut client.requests.asked) {
            client.say(&mut self.core, Message::Cancel(ticket));
        }
        client.process.alive = false;
        client.process.frozen = false;
        for told in std::mem::take(&mut client.backlog) {
            if let Told::Reply(_, Ok(reply)) = told {
                client.unread.push(reply);
            }
        }
        client.forget();
        self.return_unread(id);
        let client = &mut self.clients[id];
        let Some(process) = client.process.peer.process else { return };
        let agent = &mut self.agents[host];
        agent.machine.processes.remove(&process.pid);
        let watched: Vec<_> = agent
            .callers
            .watches
            .iter()
            .filter(|(_, of)| of.pid == process.pid)
            .map(|(session, _)| *session)
            .collect();
        for session in watched {
            let after = self.core.random.us(5, 300);
            self.core.after(after, Happening::Exited(host, agent.life.incarnation, session));
        }
    }

    pub(super) fn thaw_client(&mut self, id: usize) {
        let client = &mut self.clients[id];
        if std::mem::take(&mut client.process.hung) {
            self.core.line(|| format!("client {id}: goes on"));
        }
        if !std::mem::take(&mut client.process.frozen) {
            return;
        }
        self.core.line(|| format!("client {id}: goes on"));
        for told in std::mem::take(&mut client.backlog) {
            client.hear(&mut self.core, told);
        }
        self.return_unread(id);
        let client = &mut self.clients[id];
        let agent = &self.agents[client.host];
        client.think(&mut self.core, agent);
    }

    pub(super) fn farewell(&mut self) {
        self.core.phase = Phase::Farewell;
        self.core.line(|| "programs end".to_owned());
        for id in 0..self.clients.len() {
            if self.clients[id].farewell(&mut self.core) {
                self.kill(id);
            }
            self.clients[id].process.done = true;
        }
    }

    pub(super) fn last_orders(&mut self) {
        for id in 0..self.clients.len() {
            self.kill(id);
        }
    }
}

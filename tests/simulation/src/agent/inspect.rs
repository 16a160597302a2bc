//! The harness's own questions to an agent.

use tenure::wire::SessionStatus;
use tenure_core::keeper::{Command, Peer, Reply, Request, StatusPage, Ticket};
use tenure_core::model::Quota;

use super::super::core::Core;
use super::{AGENT_UID, Agent};

/// The harness's own questions come under this ticket.
const INSPECTION: Ticket = Ticket(u64::MAX);

impl Agent {
    /// Everything that the keeper knows, by its own status.
    pub(crate) fn inspect(&mut self, core: &Core) -> Vec<SessionStatus> {
        let now = self.boottime(core);
        let Some(keeper) = &mut self.keeper else { return Vec::new() };
        let page = StatusPage::first(usize::MAX);
        keeper.handle_request(now, INSPECTION, own_peer(), Request::Status(page));
        while let Some(command) = keeper.poll_command() {
            if let Command::Reply { ticket: INSPECTION, reply: Ok(Reply::Status(status)) } = command
            {
                return status.visible;
            }
        }
        Vec::new()
    }
}

/// The agent's own user, who sees everything.
pub(crate) fn own_peer() -> Peer {
    Peer {
        uid: AGENT_UID,
        gid: AGENT_UID,
        process: None,
        watchable: false,
        quota: Quota::default(),
    }
}

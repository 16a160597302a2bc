//! Pattern runners: each has a connection of its own, and speaks gRPC as the stubs of Rust do.

use std::time::Duration;

use tenure_proto::prism::admin::v1::control_plane_client::ControlPlaneClient;
use tenure_proto::prism::admin::v1::{
    AcquireLeaseRequest, MailboxHeartbeatRequest, ReleaseLeaseRequest,
};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{Gateway, channel, runner};

/// Runners that know their mailboxes by the number of the runner.
#[derive(Debug, Clone)]
pub struct PatternRunners(Vec<ControlPlaneClient<Channel>>);

impl PatternRunners {
    /// So many of them, on the runtime that this is called in.
    pub fn of(gateway: &Gateway, count: usize) -> PatternRunners {
        let client = |_| ControlPlaneClient::new(channel(gateway));
        PatternRunners((0..count).map(client).collect())
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Runner `number` takes a mailbox for so long.
    ///
    /// # Errors
    ///
    /// When the gateway, or another holder, refuses.
    pub async fn acquire(&self, number: usize, mailbox: &str, ttl: Duration) -> Result<(), Status> {
        let request = AcquireLeaseRequest {
            mailbox_id: mailbox.to_owned(),
            runner_id: runner(number),
            proxy_id: "proxy-01".to_owned(),
            address: format!("10.0.0.1:{}", number + 1),
            ttl_seconds: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX),
            ..AcquireLeaseRequest::default()
        };
        let answer = self.0[number].clone().acquire_lease(request).await?.into_inner();
        done(answer.success, answer.message)
    }

    /// Its heartbeat, which says how it does.
    ///
    /// # Errors
    ///
    /// When the lease is not renewed.
    pub async fn heartbeat(
        &self,
        number: usize,
        mailbox: &str,
        status: &str,
    ) -> Result<(), Status> {
        let request = MailboxHeartbeatRequest {
            mailbox_id: mailbox.to_owned(),
            runner_id: runner(number),
            proxy_id: "proxy-01".to_owned(),
            status: status.to_owned(),
            ..MailboxHeartbeatRequest::default()
        };
        let answer = self.0[number].clone().mailbox_heartbeat(request).await?.into_inner();
        done(answer.lease_renewed, answer.message)
    }

    /// It gives the mailbox up.
    ///
    /// # Errors
    ///
    /// When it does not hold it.
    pub async fn release(&self, number: usize, mailbox: &str) -> Result<(), Status> {
        let (mailbox_id, runner_id) = (mailbox.to_owned(), runner(number));
        let request = ReleaseLeaseRequest { mailbox_id, runner_id };
        let answer = self.0[number].clone().release_lease(request).await?.into_inner();
        done(answer.released, answer.message)
    }
}

fn done(is_done: bool, message: String) -> Result<(), Status> {
    if is_done { Ok(()) } else { Err(Status::new(Code::FailedPrecondition, message)) }
}

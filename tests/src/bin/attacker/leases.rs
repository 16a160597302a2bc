//! The attack with leases.

use std::collections::VecDeque;
use std::rc::Rc;

use serde_json::json;
use tenure_tests::harness::boottime_ns;

use super::connection::{Connection, post};
use super::requests::{ask, long_name};
use super::target::{RETRY, Target, pause};

/// Leases with names and attributes of the greatest length.
pub(super) struct Leases {
    pub(super) target: Rc<Target>,
    pub(super) connection: Connection,
    /// Leases of one session.
    pub(super) holds: usize,
    pub(super) taken: VecDeque<String>,
}

impl Leases {
    /// Takes a session and its leases; whether there was room for all of them.
    pub(super) async fn take(&mut self) -> bool {
        match self.try_take().await {
            Ok(has_room) => has_room,
            Err(error) => {
                self.target.saw(&error.root_cause().to_string());
                self.connection = self.target.connect().await;
                false
            }
        }
    }

    async fn try_take(&mut self) -> anyhow::Result<bool> {
        let with = json!({"name": long_name(0), "tether": "process", "holds": self.holds.max(63)});
        let answer = self.connection.exchange(&post("/v1/register", &with)).await?;
        self.target.saw(&format!("session {}", answer.sort()));
        if answer.status != 201 {
            return Ok(false);
        }
        let session = answer.field("session")?;
        let number = usize::try_from(boottime_ns())?;
        let asks = (0..self.holds).map(|at| ask("routes", &session, number + at));
        let answers = self.connection.exchange_all(&asks.collect::<Vec<_>>()).await?;
        answers.iter().for_each(|answer| self.target.saw(&format!("lease {}", answer.sort())));
        self.taken.push_back(session);
        Ok(answers.iter().all(|answer| answer.status == 200))
    }

    pub(super) async fn give_back(&mut self) {
        let Some(session) = self.taken.pop_front() else { return pause(RETRY).await };
        let end = post("/v1/release", &json!({"session": session}));
        if self.connection.exchange(&end).await.is_err() {
            self.connection = self.target.connect().await;
        }
    }
}

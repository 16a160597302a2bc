//! Whether the store takes writes: calls that raise a doubt, and the write that is tried then.

use std::sync::Arc;

use tenure_core::model::{Answer, BeatAnswer, Failure};
use tenure_core::time::Boottime;
use tracing::{info, warn};

use super::{Driver, Reply, Task};
use crate::remote::backend::{Backend, ChoreOf, FoundOf, LineOf};
use crate::remote::link::Connector;
use crate::remote::writes::{WriteError, WriteOutcome};

type ResultOf<B> = Result<Reply<FoundOf<B>>, Failure>;

impl<B: Backend> Driver<B> {
    /// Takes a failed call as a reason to try a write.
    pub(super) fn weigh(&mut self, purpose: &Task<ChoreOf<B>>, result: &ResultOf<B>) {
        if !B::Connector::TRIES_WRITES {
            return;
        }
        let cause = match (purpose, result) {
            (Task::Request { request, .. }, Err(failure)) if !request.is_read() => failure.cause(),
            (Task::Chore(_), Err(failure)) => failure.cause(),
            (_, Ok(Reply::Answer(Answer::Renew(answers)))) => {
                let failed = answers.iter().find_map(|answer| match answer {
                    BeatAnswer::Failed(cause) => Some(cause),
                    _ => None,
                });
                let Some(cause) = failed else { return };
                cause
            }
            _ => return,
        };
        self.condition.writes.doubt(cause);
    }

    /// Tries a write that is due, on the connection of claims, so that the same causes delay it.
    pub(super) fn try_write(&mut self, now: Boottime) {
        let Some(why) = self.condition.writes.take(now) else { return };
        let dialer = Arc::clone(&self.links.dialer);
        let link = &self.links.commands;
        self.calls.start(
            now,
            self.timeout,
            link,
            Task::TryWrite,
            async move |mut line: LineOf<B>| {
                line.sending();
                let tried = dialer.connector().try_write(line.connection(), Some(&why)).await;
                Ok(Reply::WriteTried(tried))
            },
        );
    }

    pub(super) fn handle_tried(&mut self, now: Boottime, result: ResultOf<B>) {
        let outcome = match result {
            Ok(Reply::WriteTried(Ok(()))) => WriteOutcome::Taken,
            Ok(Reply::WriteTried(Err(WriteError::Refused(cause)))) => WriteOutcome::Refused(cause),
            Ok(Reply::WriteTried(Err(WriteError::Silent(cause)))) => WriteOutcome::Silent(cause),
            Err(failure) if failure.is_uncertain() => {
                WriteOutcome::Silent(failure.cause().to_owned())
            }
            Ok(_) | Err(_) => WriteOutcome::NotSent,
        };
        if self.condition.writes.conclude(now, outcome) {
            match self.condition.writes.refusal() {
                Some(refusal) => warn!("{}: {refusal}", B::Connector::STORE),
                None => info!("{} takes writes again", B::Connector::STORE),
            }
        }
    }
}

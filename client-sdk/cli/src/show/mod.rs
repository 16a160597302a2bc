//! Subcommands that show what the agent knows, to people and to programs.

mod agents;
mod can;
mod doctor;
mod events;
mod find;
mod glob;
mod history;
mod holds;
pub(crate) mod leftovers;
mod limit;
mod list;
mod log;
pub(crate) mod process;
mod resource;
mod revoke;
mod silence;
mod socket;
mod status;
mod table;
pub(crate) mod when;
mod why;

use std::future::Future;

use tenure::client::{CallError, Client};
use tokio::time::timeout;

pub(crate) use agents::agents;
pub(crate) use can::can;
pub(crate) use doctor::doctor;
pub(crate) use events::{events, observe};
pub(crate) use find::find;
pub(crate) use history::history;
pub(crate) use limit::limit;
pub(crate) use list::list;
pub(crate) use log::log;
pub(crate) use resource::{routes, standing};
pub(crate) use revoke::revoke;
pub(crate) use socket::socket;
pub(crate) use status::status;
pub(crate) use table::{shown, visible};
pub(crate) use why::why;

use crate::ANSWER_MAX;
use crate::exit;
use crate::failure::Failure;

/// The answer to a question about `what`, unless the agent sleeps. One that is seen to be stopped is not waited
/// for.
async fn ask<T>(
    client: &Client,
    what: &str,
    question: impl Future<Output = Result<T, CallError>>,
) -> Result<T, Failure> {
    tokio::select! {
        answer = answer(client, question) => answer.map_err(|error| Failure::of_call(what, &error)),
        process = silence::stopped(client.path()) => {
            let path = client.path().display();
            let line = format!("{what}: the agent at {path} gives no answer: {}", process.line());
            Err(Failure::new(exit::UNAVAILABLE, line))
        }
    }
}

pub(crate) async fn answer<T>(
    client: &Client,
    question: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    timeout(ANSWER_MAX, question).await.unwrap_or_else(|_| {
        Err(CallError::TimedOut { path: client.path().to_owned(), after: ANSWER_MAX })
    })
}

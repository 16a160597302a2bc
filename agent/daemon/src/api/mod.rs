//! The local API: HTTP/1.1 and JSON on a Unix socket. One file per resource, each parse → check →
//! action → response.
//!
//! Invariant: nothing here decides who holds what, and nothing here waits for a slow client while
//! another one could be served.

#![expect(
    clippy::disallowed_methods,
    reason = "no deadline here decides a hold: one that stands still while the machine sleeps does no harm"
)]

mod acquire;
mod agents;
mod answers;
mod beat;
mod bounds;
mod can;
mod checkpoint;
mod context;
mod doctor;
mod endpoints;
mod events;
mod examples;
mod frames;
mod generators;
mod health;
mod history;
mod leftovers;
mod limits;
mod list;
mod log;
mod metrics;
mod metrics_listener;
mod openapi;
mod parse;
mod places;
mod probe;
mod quarantine;
mod query;
mod refusals;
mod register;
mod release;
mod respond;
mod revoke;
mod routes;
mod server;
mod standing;
mod status;
#[cfg(test)]
mod tests;
mod turns;
mod validate;

pub use context::{About, Context};
pub use limits::{BODY_MAX, HEAD_MAX, Limits};
pub use metrics_listener::{MetricsListener, MetricsListenerError, bind_metrics};
pub use places::Places;
pub use probe::{Door, SelfProbe, Unanswered, parse_answer, self_probe};
pub use server::{Drained, Identity, Listening, serve};
pub use turns::Turns;

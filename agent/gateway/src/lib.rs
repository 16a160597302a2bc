//! Tenure's gateway: agents coordinate through it, and only it has the password of the store behind.
//!
//! | room | what |
//! |---|---|
//! | `main.rs` | the whole life on one page: parse → prepare → open the store → bind → serve → drain |
//! | `access/` | callers: keys, principals, their bounds, and what they have |
//! | `face/` | HTTP: accept loop, the agents' endpoints, their change streams, health |
//! | `face/people/` | the data of the status page: holders, waiters, the past, the gateway's state; and revocations |
//! | `face/grpc/`, `face/routing/` | over gRPC: the control plane of RFC-049; registration of proxies, and streams of routes |
//! | `mailbox.rs` | Pure: checks and decides calls of the control plane |
//! | `quarantine.rs` | the command that ends the quarantine of a store which lost data |
//! | `local_key.rs` | the key of the programs of the gateway's user, and the address of the page with it |
//! | `gateway_run.rs` | which gateway this is, and which run of it |
//! | `tls/` | the gateway's certificate, and those of its clients |
//! | `store/` | the one thread that runs the store; `mod.rs` is everybody's way to it |
//! | `delivery/` | the routes that are followed, and the proxies that are told of them |
//! | `routes/` | Pure: the routes of mailboxes, and what each reader and each proxy lacks of them |
//! | `settings/` | flags, environment, files → one validated `Settings`; modes |
//! | `metrics.rs`, `reports.rs` | numbers for Prometheus; readiness, status and signs of life for systemd |
//! | `trail/` | the audit trail, within bounds; all but its thread and its file is pure |
//! | `keys.rs` | commands that change keys |
//! | `cluster.rs`, `cluster/` | commands about the cluster of this gateway: members, backups, recovery |
//! | `reload.rs` | SIGHUP: settings and keys are read again; keys also when their file changes |
//! | `thrift.rs` | memory of a burst goes back to the system |
//! | `follow.rs` | keys in the store: read when they change, and their uses told |
//!
//! Imports point one way: `main → face → trail → access → tls`, `face → delivery → routes`, `delivery → access`, `delivery → store`. What travels is in
//! `tenure_stores::gateway::wire`, which the agent uses, too.
//!
//! Invariant: a gateway keeps nothing that its store does not have, but for its own id. Any number of them may serve one
//! store.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a name that says all needs no comment; nobody else links this")]

pub mod access;
pub mod cluster;
pub mod delivery;
pub mod face;
mod follow;
pub mod gateway_run;
pub mod keys;
pub mod local_key;
pub mod mailbox;
pub mod metrics;
pub mod quarantine;
mod reload;
mod reports;
pub mod routes;
pub mod settings;
pub mod store;
mod thrift;
pub mod tls;
pub mod trail;

pub use self::follow::Follow;
pub use self::reload::Reload;
pub use self::reports::Reports;
pub use self::thrift::give_memory_back;

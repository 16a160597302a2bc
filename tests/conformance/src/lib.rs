#![doc = include_str!("../README.md")]

mod allowances;
pub mod client;
mod cluster;
mod compare;
mod engine;
mod gateway;
mod machine;
mod messages;
mod operation;
mod oracle;
mod plan;
mod postgres;
mod redis;
mod replay;
mod routes;
mod run;
mod seen;
mod shrink;
mod stores;
mod subject;
mod text;
mod tokens;
pub mod transcript;
mod trial;

pub use allowances::Allowance;
pub use run::{Outcome, Runner};
pub use seen::Seen;
pub use stores::{STORES, Store};
pub use subject::{Hint, Subject, Upkeep};

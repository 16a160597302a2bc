//! Gateways that keep everything themselves, as a cluster.

mod commands;
mod full;
mod histories;
mod nodes;
mod rotation;
mod strangers;

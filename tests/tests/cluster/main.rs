//! Gateways that keep everything themselves, as a cluster.

mod full;
mod histories;
mod nodes;
mod rotation;
mod strangers;

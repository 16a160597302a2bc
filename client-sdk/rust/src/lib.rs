//! Client of the Tenure agent.

pub mod client;
pub mod page;
pub mod wire;

//! Client of the Tenure agent.

pub mod page;
pub mod wire;

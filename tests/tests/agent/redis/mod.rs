//! Agents on Redis.

mod agents;
mod doctor;
mod faults;
mod harness;
mod leader;
mod package;
mod refusals;
mod reset;
mod rest;
mod sentinel;
mod servers;
mod sessions;
mod storm;

//! Agents on Postgres.

mod agents;
mod doctor;
mod faults;
mod path;
mod reset;
mod seed;

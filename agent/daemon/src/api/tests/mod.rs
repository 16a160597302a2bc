//! The API over real sockets, with a heart that does what the test says.

mod buffers;
mod client;
mod connections;
mod counts;
mod doctor;
mod drain;
mod endpoints;
mod fields;
mod hostile;
mod log;
mod probe;
mod rig;
mod streams;

use client::Client;
use rig::{Rig, SESSION, within};

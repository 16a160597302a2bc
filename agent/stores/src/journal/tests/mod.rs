#![allow(clippy::unwrap_used, reason = "a journal that cannot be used is a failed test")]

mod disk;
mod faults;
mod held;
mod ledger;
mod log;
mod samples;
mod timing;

pub(crate) use held::Held;

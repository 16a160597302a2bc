//! The command `tenure`.

mod away;
mod exit_codes;
mod habits;
mod kept;
mod life;
mod outputs;
mod prompts;
mod run;
mod service;
mod signals;
mod status_screen;
mod terminal;
mod wrong_usage;

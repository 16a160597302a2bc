//! The command `tenure`.

mod away;
mod ends;
mod exit_codes;
mod habits;
mod kept;
mod life;
mod outputs;
mod page;
mod prompts;
mod run;
mod scene;
mod service;
mod signals;
mod status_screen;
mod terminal;
mod wrong_usage;

//! The keeper against the engine, without network, sockets or clock.

mod at_least;
mod bench;
mod crowd;
mod denials;
mod ends;
mod hints;
mod holds;
mod late_answers;
mod order;
mod presence;
mod quotas;
mod restarts;
mod scripts;
mod waits;
mod watching;
mod why_lost;

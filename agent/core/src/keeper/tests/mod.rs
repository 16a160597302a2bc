//! The keeper against the engine, without network, sockets or clock.

mod at_least;
mod bench;
mod crowd;
mod denials;
mod ends;
mod hints;
mod holds;
mod late_answers;
mod presence;
mod quotas;
mod restarts;
mod waits;
mod watching;

//! What differs by operating system: clock, peer identity, process watch, page files.

pub mod clock;

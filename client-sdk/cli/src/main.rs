//! The `tenure` command.

fn main() {}

//! The `tenured` daemon.

fn main() {}

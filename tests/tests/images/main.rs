//! The container images.
//!
//! A program of its own, that runs its tests in one process: they share images that take long to build.

mod compose;
mod container;
mod gateway;

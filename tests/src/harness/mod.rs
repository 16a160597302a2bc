//! Real agents, programs and sockets for tests.
//!
//! Everything waits for a condition with one generous deadline ([`DEADLINE`]); nothing asserts how
//! long something took. What a test starts ends with the test.

mod agent;
mod answer;
mod attacker;
mod balancer;
mod binaries;
mod browser;
mod campaigner;
mod client;
mod compose;
mod containers;
mod curl;
mod disk_image;
mod event_log;
mod events;
mod fence;
mod fleet;
pub mod frames;
mod gate;
mod gateway;
mod hosts;
mod http;
mod kinds;
mod memory_group;
mod nodes;
mod page;
mod pattern_runners;
mod puppet;
mod python;
mod routes;
mod runners;
mod sdk;
mod seed_backend;
mod service_manager;
mod shared_store;
mod siege;
mod skew;
mod small_disk;
mod tenure_run;
mod users;

pub use agent::{Agent, Mark, Setup};
pub use answer::Answer;
pub use attacker::Attacker;
pub use balancer::Balancer;
pub use binaries::{binary, copy_for_others, install_program};
pub use browser::{Browser, Screen, axe, key};
pub use campaigner::Campaigner;
pub use client::{Client, Granted, Session};
pub use compose::{Compose, Host};
pub use containers::{
    Container, Containers, GATEWAY_IMAGE, IMAGE, SHARED_GROUP, STRICT, without_cargo,
};
pub use curl::Curl;
pub use disk_image::DiskImage;
pub use event_log::{EventLog, Seen};
pub use events::{Events, StreamError};
pub use fence::{Fence, Worker, Write};
pub use fleet::{Fleet, nothing_is_left, start_agent};
pub use gate::Gate;
pub use gateway::{ChangeStream, Gateway, Key};
pub use hosts::Hosts;
pub use http::Http;
pub use kinds::kind_of;
pub use memory_group::MemoryGroup;
pub use nodes::{Node, Nodes};
pub use page::{PageFile, PageSlot};
pub use pattern_runners::PatternRunners;
pub use puppet::Puppet;
pub use python::{Pending, Python, interpreter as python_interpreter};
pub use routes::{FakeProxy, RouteStream, Runners, Told, channel, register, runner};
pub use runners::{MAILBOX, RfcRunners, of_runner};
pub use sdk::{open_session, within};
pub use seed_backend::SeedBackend;
pub use service_manager::{DESCRIPTORS_MAX, ServiceManager};
pub use shared_store::SharedStore;
pub use siege::{Holder, Siege, wait_s};
pub use skew::{Skew, skew};
pub use small_disk::SmallDisk;
pub use tenure_harness::*;
pub use tenure_run::{TenureRun, read_pid, read_when_there, run_to_end};
pub use users::other_users;

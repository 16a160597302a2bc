//! Nodes talk: frames over one TCP connection, with TLS or without, many questions under way at once.

mod deliveries;
mod frames;
mod link;
mod peers;
mod places;
mod server;
mod tls;
mod transport;
mod users;
mod wire;

pub(crate) use deliveries::{Deliveries, TooLarge};
pub(crate) use link::{Link, LinkError};
pub(crate) use peers::Peers;
pub(crate) use server::serve;
pub use tls::Tls;
pub(crate) use transport::tcp;
pub use transport::{Accept, Dial, Duplex, Network, Opening, Stream, Trust, Unopened};
pub use users::Users;
pub(crate) use wire::{Ask, FRAME_MAX, IMAGE_MAX, PART, Question, Refusal, Reply, Tell};

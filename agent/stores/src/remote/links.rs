//! The connections of a driver, and which of them carries a request.

use std::sync::Arc;

use tenure_core::model::Request;

use super::hints::HintSink;
use super::link::{Connector, Dialer, Link};
use super::purpose::Purpose;

/// The connections of a driver.
pub(super) struct Links<D: Connector> {
    /// Makes one more for an examination.
    pub(super) dialer: Arc<Dialer<D>>,
    pub(super) beats: Link<D::Connection>,
    pub(super) commands: Link<D::Connection>,
    pub(super) feed: Link<D::Connection>,
    /// What takes long, or what no client waits for: nothing on it keeps a claim or a release waiting.
    pub(super) background: Link<D::Connection>,
}

impl<D: Connector> Links<D> {
    /// Starts to connect. What the feed brings goes into `sink`.
    pub(super) fn open(dialer: &Arc<Dialer<D>>, sink: HintSink) -> Links<D> {
        let open = |purpose| Link::open(Arc::clone(dialer), purpose);
        Links {
            dialer: Arc::clone(dialer),
            beats: open(Purpose::Beats),
            commands: open(Purpose::Commands),
            feed: Link::open_feed(Arc::clone(dialer), sink),
            background: open(Purpose::Background),
        }
    }

    /// Sends what is in the buffers of connections that carry requests.
    pub(super) fn flush(&self) {
        self.beats.flush();
        self.commands.flush();
        self.background.flush();
    }

    /// The one that carries a request.
    pub(super) fn of(&self, request: &Request) -> &Link<D::Connection> {
        match request {
            Request::Renew(_) => &self.beats,
            request if D::HAS_BACKGROUND && request.is_aside() => &self.background,
            _ => &self.commands,
        }
    }
}

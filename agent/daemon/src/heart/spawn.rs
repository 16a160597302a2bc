//! The heart's thread and what steers it.

use std::io;
use std::sync::Arc;

use tenure_core::keeper::Settings;
use tokio::sync::{mpsc, oneshot};

use super::handle::{self, Handle};
use super::run::{self, Parts};
use crate::telemetry::Metrics;

/// An order of the lifecycle to the heart.
#[derive(Debug)]
pub enum Control {
    /// Release everything, tell everybody, end.
    Stop,
    /// End and keep every hold for the next agent.
    Restart,
    /// Use these bounds and defaults from now on.
    Reload(Box<Settings>),
    /// Make again what somebody removed from the runtime directory.
    Renew {
        /// The directory is another one: the old one may come back, with a journal that was overtaken.
        has_moved: bool,
    },
}

/// Steering messages that may wait: a signal each.
const CONTROLS_MAX: usize = 16;

/// A running heart.
#[derive(Debug)]
pub struct Heart {
    control: mpsc::Sender<Control>,
    ended: oneshot::Receiver<()>,
}

/// Starts the heart's thread. Its parts are made on that thread, because some of them must stay on
/// it. So many bytes may wait for clients or come from them; what is refused is counted in `metrics`.
///
/// # Errors
///
/// When the thread cannot be started, or its parts cannot be made.
pub fn spawn<E>(
    buffered_bytes: usize,
    metrics: Arc<Metrics>,
    make: impl FnOnce() -> Result<Parts, E> + Send + 'static,
) -> Result<(Heart, Handle), E>
where
    E: From<io::Error> + Send + 'static,
{
    let (control, control_out) = mpsc::channel(CONTROLS_MAX);
    let (handle, inbox) = handle::channel(buffered_bytes, metrics);
    let (made, made_out) = std::sync::mpsc::sync_channel(1);
    let (ended_in, ended) = oneshot::channel();
    std::thread::Builder::new().name("heart".to_owned()).spawn(move || {
        // The keeper has a timer of its own; tokio's are for the upstream's connections.
        let built = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = match built {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = made.send(Err(error.into()));
                return;
            }
        };
        runtime.block_on(async move {
            let heart =
                make().and_then(|parts| run::Run::new(parts, inbox, control_out).map_err(E::from));
            match heart {
                Ok(heart) => {
                    let _ = made.send(Ok(()));
                    heart.run().await;
                }
                Err(error) => {
                    let _ = made.send(Err(error));
                }
            }
        });
        // The lifecycle may have stopped listening; it has nothing left to wait for then.
        let _ = ended_in.send(());
    })?;
    match made_out.recv() {
        Ok(Ok(())) => Ok((Heart { control, ended }, handle)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("the heart's thread ended while it started").into()),
    }
}

impl Heart {
    /// Steers the heart. Does nothing when it has ended.
    pub async fn control(&self, control: Control) {
        // An ended heart needs no steering.
        let _ = self.control.send(control).await;
    }

    /// Has it make again what somebody removed from the runtime directory. False if it is too busy to be told.
    pub fn renew(&self, has_moved: bool) -> bool {
        self.control.try_send(Control::Renew { has_moved }).is_ok()
    }

    /// Waits until the heart has ended; after [`Control::Stop`] when nothing is held for anybody,
    /// after [`Control::Restart`] when the journal is written.
    pub async fn ended(&mut self) {
        // A dropped sender means the same.
        let _ = (&mut self.ended).await;
    }
}

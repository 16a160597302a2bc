//! The SDK as its two sorts of programs use it: an event loop of one thread, and threads.

use std::future::Future;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tenure::client::CallError;
use tenure::wire::Code;
use tenure::{AcquireError, Attempt, Lost, ReleaseError, Resource, SessionBuilder};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Why there is no hold, in the words of the script.
#[derive(Debug)]
pub(crate) struct Denied {
    pub(crate) how: &'static str,
    /// The holder's name if it is busy, the code if it is refused, else the error.
    pub(crate) detail: String,
}

/// A session that has ended is no word of the script: a program opens a new one then.
pub(crate) const SESSION_GONE: &str = "session_gone";

impl Denied {
    fn busy(holder: Option<&tenure::wire::Holder>) -> Denied {
        let name = holder.map(|holder| holder.name.clone());
        Denied { how: "busy", detail: name.unwrap_or_default() }
    }
}

impl From<AcquireError> for Denied {
    fn from(error: AcquireError) -> Denied {
        let detail = error.to_string();
        match error {
            AcquireError::HeldBySelf(problem) => Denied::busy(problem.holder.as_ref()),
            AcquireError::TimedOut { .. } => Denied { how: "wait_timeout", detail },
            AcquireError::SessionGone(_) => Denied { how: SESSION_GONE, detail },
            AcquireError::Call(error) if error.is_session_gone() => {
                Denied { how: SESSION_GONE, detail }
            }
            AcquireError::Call(CallError::Refused(problem)) => match problem.code {
                Code::UpstreamUnavailable => Denied { how: "upstream_unavailable", detail },
                code => Denied { how: "refused", detail: code.as_str().to_owned() },
            },
            AcquireError::Call(CallError::Unreachable { .. } | CallError::TimedOut { .. }) => {
                Denied { how: "agent_unavailable", detail }
            }
            _ => Denied { how: "another error", detail },
        }
    }
}

/// An acquire that was begun.
pub(crate) struct Begun<H> {
    pub(crate) outcome: Receiver<Result<H, Denied>>,
    pub(crate) cancel: Option<Box<dyn FnOnce()>>,
}

/// Work under a hold.
pub(crate) struct Guarded {
    /// The label of its hold.
    pub(crate) hold: String,
    pub(crate) ended: Receiver<Lost>,
    pub(crate) stop: Box<dyn FnOnce()>,
}

/// The SDK as a program uses it.
pub(crate) trait Twin: Sized {
    type Session: Clone + Deref<Target = tenure::Session>;
    type Hold: Deref<Target = tenure::Hold> + Send + Sync + 'static;
    const ABILITIES: &'static [&'static str];

    fn start() -> Self;
    fn open(
        &self,
        socket: &Path,
        describe: impl FnOnce(SessionBuilder) -> SessionBuilder + Send + 'static,
    ) -> Self::Session;
    /// Waits for something of the SDK.
    fn wait_for<T: Send + 'static>(
        &self,
        session: &Self::Session,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T;
    /// Passes the session's events on until it ends.
    fn record(&self, session: &Self::Session, each: impl FnMut(Value) + Send + 'static);
    fn begin(
        &self,
        session: &Self::Session,
        resource: Resource,
        wait: Option<Duration>,
    ) -> Begun<Self::Hold>;
    fn release(&self, hold: Self::Hold) -> Result<(), ReleaseError>;
    fn guard(&self, label: &str, hold: Arc<Self::Hold>) -> Guarded;
    fn close(&self, session: Self::Session) -> Result<(), CallError>;
    /// Blocks the thread that the SDK runs in while that work lasts.
    fn block(&self, work: impl FnOnce() + Send + 'static);
}

fn as_json(event: Result<tenure::wire::Event, tenure::Missed>) -> Value {
    match event {
        Ok(event) => serde_json::to_value(&event).expect("an event has JSON"),
        Err(missed) => serde_json::json!({"event": "missed", "data": {"count": missed.count}}),
    }
}

/// A program with one thread, which runs its event loop.
pub(crate) struct Loop {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Loop {
    fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let (tell, told) = sync_channel(1);
        self.handle.spawn(async move {
            let _ = tell.send(future.await);
        });
        told.recv().expect("the loop runs")
    }
}

/// An asynchronous session, which a trait can have.
#[derive(Clone)]
pub(crate) struct Session(tenure::Session);

impl Deref for Session {
    type Target = tenure::Session;

    fn deref(&self) -> &tenure::Session {
        &self.0
    }
}

/// The same for a hold.
pub(crate) struct Hold(tenure::Hold);

impl Deref for Hold {
    type Target = tenure::Hold;

    fn deref(&self) -> &tenure::Hold {
        &self.0
    }
}

async fn acquire(resource: Resource, wait: Option<Duration>) -> Result<Hold, Denied> {
    let hold = match wait {
        None => resource.acquire().await?,
        Some(Duration::ZERO) => match resource.attempt().await? {
            Attempt::Held(hold) => hold,
            Attempt::Contended(holder) => return Err(Denied::busy(holder.as_ref())),
        },
        Some(wait) => resource.acquire_timeout(wait).await?,
    };
    Ok(Hold(hold))
}

impl Twin for Loop {
    type Session = Session;
    type Hold = Hold;
    const ABILITIES: &'static [&'static str] = &["cancel", "fork"];

    fn start() -> Loop {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let _ = runtime.block_on(stopped);
        });
        Loop { handle, stop: Some(stop), thread: Some(thread) }
    }

    fn open(
        &self,
        socket: &Path,
        describe: impl FnOnce(SessionBuilder) -> SessionBuilder + Send + 'static,
    ) -> Session {
        let socket = socket.to_owned();
        self.run(async move {
            let agent = tenure::Agent::connect_to(socket).await.expect("it answers");
            Session(describe(agent.session()).open().await.expect("it registers"))
        })
    }

    fn wait_for<T: Send + 'static>(
        &self,
        _: &Session,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.run(future)
    }

    fn record(&self, session: &Session, mut each: impl FnMut(Value) + Send + 'static) {
        let mut events = session.events();
        self.handle.spawn(async move {
            while let Some(event) = events.next().await {
                each(as_json(event));
            }
        });
    }

    fn begin(&self, _: &Session, resource: Resource, wait: Option<Duration>) -> Begun<Hold> {
        let (tell, outcome) = sync_channel(1);
        let task = self.handle.spawn(async move {
            let _ = tell.send(acquire(resource, wait).await);
        });
        Begun { outcome, cancel: Some(Box::new(move || task.abort())) }
    }

    fn release(&self, hold: Hold) -> Result<(), ReleaseError> {
        self.run(hold.0.release())
    }

    fn guard(&self, label: &str, hold: Arc<Hold>) -> Guarded {
        let (tell, ended) = sync_channel(1);
        let task = self.handle.spawn(async move {
            if let Err(lost) = hold.guard(std::future::pending::<()>()).await {
                let _ = tell.send(lost);
            }
        });
        Guarded { hold: label.to_owned(), ended, stop: Box::new(move || task.abort()) }
    }

    fn close(&self, session: Session) -> Result<(), CallError> {
        self.run(session.0.close())
    }

    fn block(&self, work: impl FnOnce() + Send + 'static) {
        self.run(async move { work() });
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A program with threads.
pub(crate) struct Threads;

/// Runs something in a thread of its own.
fn in_thread<T: Send + 'static>(work: impl FnOnce(SyncSender<T>) + Send + 'static) -> Receiver<T> {
    let (tell, told) = sync_channel(1);
    std::thread::spawn(move || work(tell));
    told
}

impl Twin for Threads {
    type Session = tenure::blocking::Session;
    type Hold = tenure::blocking::Hold;
    const ABILITIES: &'static [&'static str] = &["fork"];

    fn start() -> Threads {
        Threads
    }

    fn open(
        &self,
        socket: &Path,
        describe: impl FnOnce(SessionBuilder) -> SessionBuilder + Send + 'static,
    ) -> tenure::blocking::Session {
        tenure::blocking::open(Some(socket), |agent| describe(agent.session()))
            .expect("it registers")
    }

    fn wait_for<T: Send + 'static>(
        &self,
        session: &tenure::blocking::Session,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T {
        session.block_on(future)
    }

    fn record(
        &self,
        session: &tenure::blocking::Session,
        mut each: impl FnMut(Value) + Send + 'static,
    ) {
        let (session, mut events) = (session.clone(), session.events());
        std::thread::spawn(move || {
            while let Some(event) = session.block_on(events.next()) {
                each(as_json(event));
            }
        });
    }

    fn begin(
        &self,
        session: &tenure::blocking::Session,
        resource: Resource,
        wait: Option<Duration>,
    ) -> Begun<tenure::blocking::Hold> {
        let session = session.clone();
        let outcome = in_thread(move |tell| {
            let held = match wait {
                None => session.acquire(&resource).map_err(Denied::from),
                Some(Duration::ZERO) => match session.attempt(&resource) {
                    Ok(Ok(hold)) => Ok(hold),
                    Ok(Err(holder)) => Err(Denied::busy(holder.as_ref())),
                    Err(error) => Err(error.into()),
                },
                Some(wait) => session.acquire_timeout(&resource, wait).map_err(Denied::from),
            };
            let _ = tell.send(held);
        });
        Begun { outcome, cancel: None }
    }

    fn release(&self, hold: tenure::blocking::Hold) -> Result<(), ReleaseError> {
        hold.release()
    }

    fn guard(&self, label: &str, hold: Arc<tenure::blocking::Hold>) -> Guarded {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let ended = in_thread(move |tell| {
            while !stopped.load(Ordering::Relaxed) {
                if let Err(lost) = hold.check() {
                    let _ = tell.send(lost);
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let stop = Box::new(move || stop.store(true, Ordering::Relaxed));
        Guarded { hold: label.to_owned(), ended, stop }
    }

    fn close(&self, session: tenure::blocking::Session) -> Result<(), CallError> {
        session.close()
    }

    fn block(&self, work: impl FnOnce() + Send + 'static) {
        work();
    }
}

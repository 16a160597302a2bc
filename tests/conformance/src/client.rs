//! Any store through its whole client: the [`Upstream`] that an agent opens, with its connections,
//! deadlines and repetitions.

use std::future::poll_fn;
use std::time::Duration;

use tenure_core::keeper::BEATS_PER_CALL_MAX;
use tenure_core::model::{Answer, BeatAnswer, CallId, Failure, Request};
use tenure_host::clock;
use tenure_stores::redis::Redis;
use tenure_stores::redis::layout::Layout;
use tenure_stores::redis::settings::{RedisAccess, RedisServer};
use tenure_stores::{Report, Upstream};
use tokio::runtime::{Builder, Runtime};

use crate::allowances::Allowance;
use crate::redis::{ALLOWANCES, EPOCH_US, Server};
use crate::stores::Store;
use crate::subject::{Hint, Subject};

/// The time in which a request must be answered, repetitions included. Not a measure of speed.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// After a failure, before the request is repeated.
const REPEAT_AFTER: Duration = Duration::from_millis(5);
/// Between two looks at the client's timers.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The place where a store keeps its data, started for a test. It goes by a clock of the test's own, while
/// the client goes by the machine's.
pub trait Installation {
    /// Differences that are right for this store.
    fn allowances(&self) -> &'static [Allowance];
    /// Forgets everything.
    fn wipe(&mut self);
    /// Sets its clock, to µs after the beginning.
    fn set_clock(&mut self, us: u64);
    /// Breaks every connection to it.
    fn break_connections(&mut self);
    /// A new client of it. Is called in the runtime that will drive the client.
    fn connect(&self) -> Box<dyn Upstream>;
    /// True if what is due by its clock is done at [`Installation::set_clock`]; otherwise on the way of the
    /// next request.
    fn keeps_time(&self) -> bool {
        false
    }
}

/// A client and the installation that it uses.
pub struct Client<I> {
    installation: I,
    /// Dropped before the runtime.
    upstream: Option<Box<dyn Upstream>>,
    runtime: Runtime,
    calls: u64,
}

impl<I: Installation> Client<I> {
    /// No client yet: each run has one of its own.
    pub fn new(installation: I) -> Client<I> {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Client { installation, upstream: None, runtime, calls: 0 }
    }
}

impl<I: Installation> Subject for Client<I> {
    fn allowances(&self) -> &'static [Allowance] {
        self.installation.allowances()
    }

    fn begin(&mut self) {
        let _guard = self.runtime.enter();
        if let Some(mut before) = self.upstream.take() {
            before.close();
        }
        self.installation.wipe();
        self.upstream = Some(self.installation.connect());
    }

    fn set_clock(&mut self, us: u64) {
        self.installation.set_clock(us);
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        // Agents send no more beats at once.
        if let Request::Renew(beats) = request
            && beats.len() > BEATS_PER_CALL_MAX
        {
            let mut answers = Vec::new();
            for part in beats.chunks(BEATS_PER_CALL_MAX) {
                match self.ask(&Request::Renew(part.to_vec()))? {
                    Answer::Renew(part) => answers.extend(part),
                    other => return Ok(other),
                }
            }
            return Ok(Answer::Renew(answers));
        }
        let Client { upstream, runtime, calls, .. } = self;
        let upstream = upstream.as_mut().ok_or("no run has begun")?;
        let give_up = clock::now() + ANSWERED_WITHIN;
        loop {
            *calls += 1;
            match runtime.block_on(answer(&mut **upstream, CallId(*calls), request)) {
                Ok(answer) if has_failed_beats(&answer) && clock::now() < give_up => {
                    drop(runtime.block_on(report(&mut **upstream, REPEAT_AFTER)));
                }
                Ok(answer) => return Ok(answer),
                Err(failure) if clock::now() > give_up => return Err(failure.cause().to_owned()),
                Err(_) => drop(runtime.block_on(report(&mut **upstream, REPEAT_AFTER))),
            }
        }
    }

    fn calls(&self) -> usize {
        // The client does not say; a long table takes more than one.
        2
    }

    fn reconnect(&mut self) {
        self.installation.break_connections();
    }

    fn hints(&mut self) -> Result<Vec<Hint>, String> {
        Ok(Vec::new())
    }

    fn upkeep_in_time(&self) -> &'static [bool] {
        // The client does it by the machine's clock.
        if self.installation.keeps_time() { &[true] } else { &[false] }
    }
}

/// True if a beat found a row that another transaction had locked, as the client's own upkeep may have. Agents repeat
/// such beats, too.
fn has_failed_beats(answer: &Answer) -> bool {
    let Answer::Renew(answers) = answer else { return false };
    answers.iter().any(|it| matches!(it, BeatAnswer::Failed(_)))
}

/// The answer to one call. Reports of anything else are dropped.
async fn answer(
    upstream: &mut dyn Upstream,
    number: CallId,
    request: &Request,
) -> Result<Answer, Failure> {
    upstream.submit(clock::now(), number, request.clone());
    loop {
        if let Some(Report::Answer { call, result, .. }) = report(upstream, LOOK_EVERY).await
            && call == number
        {
            return result;
        }
        if upstream.poll_timeout().is_some_and(|due| due <= clock::now()) {
            upstream.handle_timeout(clock::now());
        }
    }
}

/// The next report, if one comes in time.
async fn report(upstream: &mut dyn Upstream, within: Duration) -> Option<Report> {
    let report = poll_fn(|context| upstream.poll_report(context));
    tokio::time::timeout(within, report).await.ok()
}

/// A Redis through its whole client.
pub(crate) const REDIS: Store = Store {
    name: "redis-client",
    faults: &[],
    open: |_| Box::new(Client::new(RedisInstallation(Server::start()))),
};

/// The differences of a Redis whose hints are not looked at.
pub(crate) const REDIS_WITHOUT_HINTS: [Allowance; ALLOWANCES.len() + 1] = {
    let mut all = [Allowance::NoHints; ALLOWANCES.len() + 1];
    let mut at = 0;
    while at < ALLOWANCES.len() {
        all[at] = ALLOWANCES[at];
        at += 1;
    }
    all
};

struct RedisInstallation(Server);

impl Installation for RedisInstallation {
    fn allowances(&self) -> &'static [Allowance] {
        &REDIS_WITHOUT_HINTS
    }

    fn wipe(&mut self) {
        self.0.wipe();
    }

    fn set_clock(&mut self, us: u64) {
        self.0.set_clock(EPOCH_US + us);
    }

    fn break_connections(&mut self) {
        for kind in ["normal", "pubsub"] {
            let mut kill = redis::cmd("CLIENT");
            kill.arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes");
            kill.exec(&mut self.0.connection).expect("CLIENT KILL");
        }
    }

    fn connect(&self) -> Box<dyn Upstream> {
        let access = RedisAccess::plain(RedisServer::Unix(self.0.socket()));
        Box::new(Redis::open(access, Layout::default()))
    }
}

//! The scripts on a real server, which must say what the engine says.

use std::collections::HashMap;

use redis::Value;
use tenure_core::model::{Answer, ClaimId, Request, Resource};
use tenure_stores::redis::exchange::{
    CareOf, Cared, Exchange, Invocation, Step, Verified, care, cared, greatest_token, verified,
    verify,
};
use tenure_stores::redis::layout::Layout;

use super::planted::Planted;
use super::server::{EPOCH_US, Published, Server};

/// Calls that one request may take: pages of a table, or of a long batch.
const CALLS_MAX: usize = 100;

/// The scripts, as an agent calls them.
pub(super) struct Scripts {
    server: Server,
    pub(super) layout: Layout,
    planted: Option<Planted>,
    /// What the server calls each script, by name: with a fault it has another hash.
    loaded: HashMap<&'static str, String>,
    /// The greatest token that was told.
    floor: u64,
    /// How many calls the last request took.
    pub(super) calls: usize,
}

impl Scripts {
    /// Starts a server for them.
    pub(super) fn start(planted: Option<Planted>) -> Scripts {
        Scripts {
            server: Server::start(),
            layout: Layout::default(),
            planted,
            loaded: HashMap::new(),
            floor: 0,
            calls: 0,
        }
    }

    /// Forgets everything.
    pub(super) fn begin(&mut self) {
        self.server.wipe();
        self.server.published();
        self.floor = 0;
    }

    /// Sets the clock, to µs after the start.
    pub(super) fn set_clock(&mut self, us: u64) {
        self.server.clock.set(EPOCH_US + us);
    }

    /// The answer to a request.
    ///
    /// # Errors
    ///
    /// When the server refuses a call, or a reply cannot be read.
    ///
    /// # Panics
    ///
    /// When a script does not compile.
    pub(super) fn handle(&mut self, request: &Request) -> Result<Answer, String> {
        let (mut exchange, mut call) = Exchange::start(&self.layout, request, self.floor);
        for calls in 1..=CALLS_MAX {
            self.calls = calls;
            let reply = self.call(&call)?;
            match exchange.step(&self.layout, reply).map_err(|error| error.to_string())? {
                Step::Done(answer) => {
                    self.floor = self.floor.max(greatest_token(&answer).unwrap_or(0));
                    return Ok(answer);
                }
                Step::Next(next, invocation) => (exchange, call) = (next, invocation),
            }
        }
        Err(format!("no answer after {CALLS_MAX} calls"))
    }

    /// Does the upkeep of semaphores.
    ///
    /// # Errors
    ///
    /// As [`Scripts::handle`].
    pub(super) fn care(&mut self, of: &[Resource]) -> Result<Vec<Cared>, String> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let of: Vec<CareOf> = of
            .iter()
            .map(|Resource { tenant, name, .. }| CareOf {
                tenant: tenant.clone(),
                name: name.clone(),
                shared: true,
            })
            .collect();
        let call = care(&self.layout, &of, self.floor);
        let reply = self.call(&call)?;
        cared(reply).map_err(|error| error.to_string())
    }

    /// Which of the claims of a resource hold it.
    ///
    /// # Errors
    ///
    /// As [`Scripts::handle`].
    pub(super) fn verify(
        &mut self,
        resource: &Resource,
        claims: &[ClaimId],
    ) -> Result<Vec<bool>, String> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let claims: Vec<(ClaimId, Resource)> =
            claims.iter().map(|claim| (*claim, resource.clone())).collect();
        let call = verify(&self.layout, &claims);
        let reply = self.call(&call)?;
        let verified = verified(reply).map_err(|error| error.to_string())?;
        Ok(verified.into_iter().map(|found| found != Verified::Gone).collect())
    }

    /// What was published since this was asked last.
    pub(super) fn published(&mut self) -> Vec<Published> {
        self.server.published()
    }

    /// How many changes were made so far.
    pub(super) fn changes(&mut self) -> u64 {
        self.server.changes()
    }

    /// Keys that have not expired.
    pub(super) fn keys(&mut self) -> Vec<String> {
        self.server.keys()
    }

    fn call(&mut self, call: &Invocation) -> Result<Value, String> {
        let name = call.script.name();
        if !self.loaded.contains_key(name) {
            let source = call.script.source();
            let source = self.planted.map_or(source.to_owned(), |fault| fault.plant(name, source));
            let hash =
                redis::cmd("SCRIPT").arg("LOAD").arg(source).query(&mut self.server.connection);
            // Not a difference: a fault must be one that runs.
            self.loaded.insert(name, hash.unwrap_or_else(|error| panic!("{name}: {error}")));
        }
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.loaded[name]).arg(call.keys.len());
        for part in call.keys.iter().chain(&call.args) {
            command.arg(part.as_slice());
        }
        command.query(&mut self.server.connection).map_err(|error| format!("{name}: {error}"))
    }
}

//! Transcripts: requests, each followed by the engine's answer (`=`) and the hints it causes (`!`).
//!
//! `== name` begins a transcript, `#` a comment. A line that starts with a number is a request at
//! that second. Short names are ids; tokens start at 1. Words:
//!
//! ```text
//! claim ID by SESSION RESOURCE [ttl=30] [limit=1] [keep] [priority=0] [grace=0]
//!                              [address=A] [status=S] [partition=N] [proxy=P] [try]
//! renew ID RESOURCE [ttl=30]      release ID RESOURCE       revoke RESOURCE [of ID|nobody]
//! announce SESSION in PROJECT     beat SESSION [ttl=90]     end SESSION in PROJECT
//! inspect RESOURCE                routes [NAME]             wait
//! holders RESOURCE                reconnect
//! ```
//!
//! Words of the engine alone, since nobody sets the limits of another store, or starts it anew:
//!
//! ```text
//! settings [tokens=N..N] [queue_max=N] [tombstones_max=N]
//! quarantine until=N              extend upto=N             restart [gone=ID]
//! ```

mod exact;
mod line;
mod show;

use std::collections::BTreeSet;

use tenure_core::model::{Page, Request, Resource};
use tenure_wire::Kind;

use crate::operation::Operation;
use crate::plan::Plan;
use line::{Asked, Line};

/// The corpus, by file.
const FILES: [&str; 7] = [
    include_str!("../../transcripts/endings.txt"),
    include_str!("../../transcripts/exclusive.txt"),
    include_str!("../../transcripts/lease.txt"),
    include_str!("../../transcripts/limits.txt"),
    include_str!("../../transcripts/queues.txt"),
    include_str!("../../transcripts/semaphore.txt"),
    include_str!("../../transcripts/sessions.txt"),
];

/// Longer than anything in a transcript lives, ms.
const FOREVER_MS: u64 = 20 * 60 * 1000;

/// A conversation with a store.
#[derive(Debug)]
pub struct Transcript {
    /// The rule that it shows.
    pub name: String,
    lines: Vec<&'static str>,
}

/// All transcripts.
pub fn all() -> Vec<Transcript> {
    let mut found: Vec<Transcript> = Vec::new();
    for line in FILES.iter().flat_map(|file| file.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix("== ") {
            found.push(Transcript { name: name.to_owned(), lines: Vec::new() });
        } else if !line.is_empty() {
            let current = found.last_mut().expect("a file begins with the name of a transcript");
            current.lines.push(line);
        }
    }
    found
}

impl Transcript {
    /// Checks that the engine says what is written, to the second and to the token.
    pub fn check_engine(&self) -> Result<(), String> {
        let actual = exact::run(&self.lines);
        let length = self.lines.len().max(actual.len());
        let differs = |at: &usize| self.lines.get(*at).copied() != actual.get(*at).map(|it| &**it);
        let Some(at) = (0..length).find(differs) else { return Ok(()) };
        let expected = self.lines.get(at).copied().unwrap_or("nothing");
        let Transcript { name, .. } = self;
        Err(format!(
            "{name}: {expected:?} is expected, not the last of\n{}",
            actual[..=at.min(actual.len() - 1)].join("\n")
        ))
    }

    /// The same requests for any store, and looks at the end whether anything is left. `None` if
    /// they are for the engine alone.
    ///
    /// Each new second comes one ms later than the one before, so that no request falls into the very
    /// ms of a deadline.
    pub(crate) fn plan(&self, in_time: bool) -> Option<Plan> {
        let mut operations = Vec::new();
        let mut resources = BTreeSet::new();
        let (mut second, mut now_ms, mut late_ms) = (0, 0, 0);
        for line in self.lines.iter().filter(|line| !line.starts_with(['=', '!'])) {
            let line = Line::parse(line)?;
            if line.second < second {
                return None;
            }
            if line.second > second {
                (second, late_ms) = (line.second, late_ms + 1);
                now_ms = second * 1000 + late_ms;
                operations.push(Operation::Pass(now_ms));
            }
            operations.push(match line.asked() {
                Asked::Request(request) => {
                    resources.extend(resource_of(&request));
                    Operation::Ask(request)
                }
                Asked::RevokeOf { resource, of } => Operation::Revoke { resource, of },
                Asked::Reconnect => Operation::Reconnect,
                Asked::Nothing => continue,
                Asked::OfEngine => return None,
            });
        }
        let ending = operations.len();
        now_ms += FOREVER_MS + 1;
        operations.push(Operation::Pass(now_ms));
        operations.extend(resources.into_iter().flat_map(looks));
        // Looks may have left marks.
        operations.push(Operation::Pass(now_ms + FOREVER_MS + 1));
        Some(Plan::of(operations, ending, !in_time))
    }
}

fn resource_of(request: &Request) -> Option<Resource> {
    match request {
        Request::Claim(claim) => Some(claim.resource.clone()),
        Request::Announce(record) => Some(Resource {
            tenant: record.tenant.clone(),
            kind: Kind::Master,
            name: record.project.clone(),
        }),
        _ => None,
    }
}

fn looks(resource: Resource) -> Vec<Operation> {
    let tenant = resource.tenant.clone();
    let table = Request::Routes { tenant, name: None, page: Page::whole() };
    let table = (resource.kind == Kind::Lease).then_some(Operation::Ask(table));
    table.into_iter().chain([Operation::Ask(Request::Inspect(resource))]).collect()
}

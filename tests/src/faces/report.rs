//! The outcome of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::call::Call;
use super::lane::sent_text;
use super::request::Request;
use super::verdict::Verdict;
use super::{Face, Options, SLOW};

/// Most sorts of failures: more of them are one.
const SORTS_MAX: usize = 100;
/// The most memory of a program that was told all of it, KiB.
const RSS_MAX_KIB: u64 = 256 * 1024;

/// Something that must not be.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// Failures of one sort are counted together.
    sort: String,
    /// A request that shows it, with the call and its answer.
    shown: String,
}

impl Failure {
    /// Of a call.
    pub(super) fn of(request: &Request, call: &Call, what: String, answer: String) -> Failure {
        let odd: Vec<_> = request.odd.iter().filter(|it| call.carried.contains(it)).collect();
        let words: Vec<&str> = what.split(' ').take(4).collect();
        let sort = format!("{}, {:?}, {odd:?}: {}", call.face, request.operation, words.join(" "));
        let shown =
            format!("{what}\n{request}\n  sent: {}\n  said: {answer}", sent_text(&call.sent));
        Failure { sort, shown }
    }

    /// Of what was left.
    pub(super) fn after(sort: impl Into<String>, shown: impl Into<String>) -> Failure {
        Failure { sort: sort.into(), shown: shown.into() }
    }
}

#[derive(Debug, Default)]
struct OfFace {
    accepted: u64,
    refused: u64,
    limited: u64,
    failed: u64,
    slowest_ns: u64,
    /// The seed of the request that it was.
    slowest_seed: u64,
    slow: u64,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Report {
    requests: u64,
    what: &'static str,
    strict: bool,
    pub took: Duration,
    faces: BTreeMap<Face, OfFace>,
    /// The first of each sort, and how many there were.
    failures: BTreeMap<String, (u64, String)>,
    /// The most memory of each program, KiB.
    memory: Vec<(String, u64)>,
}

impl Report {
    pub fn new(options: &Options) -> Report {
        Report {
            requests: options.requests,
            what: options.what(),
            strict: options.strict,
            took: Duration::ZERO,
            faces: BTreeMap::new(),
            failures: BTreeMap::new(),
            memory: Vec::new(),
        }
    }

    pub(super) fn note(&mut self, face: Face, verdict: &Verdict, took_ns: u64, seed: u64) {
        let of_face = self.faces.entry(face).or_default();
        *match verdict {
            Verdict::Accepted => &mut of_face.accepted,
            Verdict::Refused => &mut of_face.refused,
            Verdict::Limited => &mut of_face.limited,
            Verdict::Failed(_) => &mut of_face.failed,
        } += 1;
        // A process takes as long as the machine lets it.
        let is_reply = !matches!(face, Face::Keys | Face::Command);
        of_face.slow += u64::from(is_reply && took_ns > SLOW.as_nanos() as u64);
        if took_ns > of_face.slowest_ns {
            (of_face.slowest_ns, of_face.slowest_seed) = (took_ns, seed);
        }
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        let Failure { sort, shown } = failure;
        if self.failures.len() >= SORTS_MAX && !self.failures.contains_key(&sort) {
            return;
        }
        self.failures.entry(sort).or_insert((0, shown)).0 += 1;
    }

    pub(super) fn remember(&mut self, program: String, kib: u64) {
        if kib > RSS_MAX_KIB {
            let what = format!("{program} took {} MiB", kib / 1024);
            self.fail(Failure::after(what.clone(), what));
        }
        self.memory.push((program, kib));
    }

    /// True if there is no need for more requests.
    pub(super) fn is_enough(&self) -> bool {
        self.failures.len() >= SORTS_MAX
    }

    /// True if nothing was found.
    pub fn is_good(&self) -> bool {
        let slow: u64 = self.faces.values().map(|face| face.slow).sum();
        self.failures.is_empty() && !(self.strict && slow > 0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (sort, (count, shown)) in &self.failures {
            writeln!(f, "FAILED {count} times: {sort}\n{shown}\n")?;
        }
        let seconds = self.took.as_secs_f64();
        let calls: u64 =
            self.faces.values().map(|it| it.accepted + it.refused + it.limited + it.failed).sum();
        writeln!(
            f,
            "{} {}, {calls} calls, {seconds:.1} s, {:.0} calls/s",
            self.requests,
            self.what,
            calls as f64 / seconds.max(0.001)
        )?;
        writeln!(
            f,
            "{:<20} {:>9} {:>9} {:>9} {:>7} {:>11} {:>7}  seed of the slowest",
            "face", "accepted", "refused", "limited", "failed", "slowest ms", "> 1 s"
        )?;
        for (face, it) in &self.faces {
            writeln!(
                f,
                "{face:<20} {:>9} {:>9} {:>9} {:>7} {:>11.1} {:>7}  {}",
                it.accepted,
                it.refused,
                it.limited,
                it.failed,
                it.slowest_ns as f64 / 1e6,
                it.slow,
                it.slowest_seed
            )?;
        }
        for (program, kib) in &self.memory {
            writeln!(f, "{program:<24} most memory {:>7.1} MiB", *kib as f64 / 1024.0)?;
        }
        Ok(())
    }
}

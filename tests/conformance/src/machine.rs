//! The machine that the nodes of a cluster replicate: each entry is applied by two machines, one of which is made again from
//! an image of the other now and then. Both must go on alike.

use std::time::Duration;

use serde_json::Value;
use tenure_cluster::clock::ClusterTime;
use tenure_cluster::machine::{Command, Founding, Machine, Operation, Outcome, VERSION};
use tenure_core::engine::journal::Key;
use tenure_core::engine::{Effect, EngineSettings};
use tenure_core::model::{Answer, Request, Resource};
use tenure_core::time::Boottime;
use uuid::Uuid;

use crate::allowances::Allowance;
use crate::stores::Store;
use crate::subject::{Hint, Subject, Upkeep};

pub(crate) const STORE: Store = Store {
    name: "machine",
    faults: &FAULTS,
    open: |fault| Box::new(Replicas::new(fault.map(str::to_owned))),
};

/// Faults of the images, and of the machine that is made of one.
const FAULTS: [&str; 6] = [
    "image-without-marks",
    "image-without-queues",
    "image-without-sessions",
    "image-without-history",
    "image-with-lesser-tokens",
    "expiry-without-an-entry",
];

/// Tokens are greater, as in the plans.
const TOKEN_FLOOR: u64 = 1500;
const UP: Duration = Duration::from_secs(60);
/// Entries after which the twin is made again.
const AGAIN: u64 = 7;

struct Replicas {
    machine: Machine,
    twin: Machine,
    now: ClusterTime,
    entries: u64,
    hints: Vec<Hint>,
    changes: u64,
    fault: Option<String>,
}

impl Replicas {
    fn new(fault: Option<String>) -> Replicas {
        let mut replicas = Replicas {
            machine: Machine::default(),
            twin: Machine::default(),
            now: since_founding(0),
            entries: 0,
            hints: Vec::new(),
            changes: 0,
            fault,
        };
        let settings = EngineSettings::default();
        let (cluster, token_floor) = (Uuid::nil(), TOKEN_FLOOR);
        let founding =
            Founding { cluster, token_floor, settings, version: VERSION, restored: None };
        // Two machines that have applied nothing are alike.
        let _ = replicas.apply(Operation::Found(Box::new(founding)));
        replicas
    }

    fn apply(&mut self, operation: Operation) -> Result<Outcome, String> {
        let command = Command { at: self.now, operation };
        let one = self.machine.apply(command.clone()).map_err(|error| error.to_string())?;
        let other = self.twin.apply(command).map_err(|error| error.to_string())?;
        if one != other || self.machine.digest() != self.twin.digest() {
            return Err(format!("a machine made of an image gives {other:?}, and not {one:?}"));
        }
        let (outcome, effects) = one;
        for effect in effects {
            match effect {
                Effect::Persist(_) => self.changes += 1,
                Effect::Change(change) => self.hints.push(Hint::of(change, Boottime::ZERO + UP)),
                Effect::ReserveTokens => {}
            }
        }
        self.entries += 1;
        if self.entries.is_multiple_of(AGAIN) {
            self.make_again()?;
        }
        Ok(outcome)
    }

    /// Makes the twin of an image, as it goes from node to node.
    fn make_again(&mut self) -> Result<(), String> {
        let image = self.machine.freeze();
        if image != self.twin.freeze() {
            return Err(format!("after {} entries the images differ", self.entries));
        }
        let mut image = serde_json::to_value(image).map_err(|error| error.to_string())?;
        self.distort(&mut image);
        let image = serde_json::from_value(image).map_err(|error| error.to_string())?;
        self.twin = Machine::thaw(image, VERSION).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// The image as a faulty machine makes it.
    fn distort(&self, image: &mut Value) {
        let engine = &mut image["engine"];
        match self.fault.as_deref() {
            Some("image-without-marks") => {
                engine["tombstones"] = empty_like(&engine["tombstones"]);
            }
            Some("image-without-queues") => {
                if let Some(claims) = engine["claims"].as_array_mut() {
                    claims.retain(|claim| claim["state"].get("Waiting").is_none());
                }
            }
            Some("image-without-sessions") => engine["sessions"] = Value::Array(Vec::new()),
            Some("image-without-history") => engine["changes"] = Value::Array(Vec::new()),
            Some("image-with-lesser-tokens") => {
                if let Some(next) = engine["tokens"]["next"].as_u64() {
                    engine["tokens"]["next"] = (next - 1).into();
                }
            }
            _ => {}
        }
    }

    /// Time passes by entries, whenever something is due.
    fn settle(&mut self) -> Result<(), String> {
        if self.fault.as_deref() == Some("expiry-without-an-entry")
            && self.twin.poll_timeout().is_some_and(|due| due <= self.now)
        {
            // Nobody else hears of it.
            let _ = self.twin.apply(Command { at: self.now, operation: Operation::Tick });
        }
        while self.machine.poll_timeout().is_some_and(|due| due <= self.now) {
            self.apply(Operation::Tick)?;
        }
        Ok(())
    }
}

/// The same with every list in it empty.
fn empty_like(value: &Value) -> Value {
    match value {
        Value::Array(_) => Value::Array(Vec::new()),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.clone(), empty_like(field))).collect()
        }
        other => other.clone(),
    }
}

fn since_founding(us: u64) -> ClusterTime {
    // Whole ms, as the clock of the plan, so that the same falls into one step.
    ClusterTime::from(Boottime::ZERO + UP + Duration::from_millis(us / 1000))
}

impl Subject for Replicas {
    fn allowances(&self) -> &'static [Allowance] {
        &[Allowance::NoVersionHints, Allowance::TellsInTime]
    }

    fn begin(&mut self) {
        *self = Replicas::new(self.fault.take());
    }

    fn set_clock(&mut self, us: u64) {
        self.now = since_founding(us);
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        let answer = if request.is_read() {
            let before = self.machine.freeze();
            let answer = self.machine.read(self.now, request.clone());
            if self.machine.freeze() != before {
                return Err("a read changed something".to_owned());
            }
            answer
        } else {
            match self.apply(Operation::Request(request.clone()))? {
                Outcome::Answer(answer) => Some(answer),
                Outcome::Keys(_) | Outcome::Done | Outcome::Refused => None,
            }
        };
        self.settle()?;
        answer.ok_or_else(|| "no answer".to_owned())
    }

    fn hints(&mut self) -> Result<Vec<Hint>, String> {
        self.settle()?;
        Ok(std::mem::take(&mut self.hints))
    }

    fn upkeep_in_time(&self) -> &'static [bool] {
        &[true]
    }

    fn look_after(&mut self, _: &[Resource]) -> Result<Option<Vec<Upkeep>>, String> {
        self.settle()?;
        Ok(None)
    }

    fn changes(&mut self) -> Option<u64> {
        Some(self.changes)
    }

    fn left(&mut self) -> Vec<String> {
        // A difference here is found by the next request.
        let _ = self.settle();
        let rows = self.machine.engine().map(|engine| engine.rows()).unwrap_or_default();
        let stays = |key: &Key| matches!(key, Key::Routes(_) | Key::History(_));
        rows.into_iter().filter(|key| !stays(key)).map(|key| format!("{key:?}")).collect()
    }
}

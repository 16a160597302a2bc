//! PURE. What every node applies, entry by entry: the engine, its tokens, and what makes nodes differ.
//!
//! Invariant: nothing here reads a clock, a file, a socket or a source of randomness. Nodes that have applied the
//! same entries have equal images, and have given equal answers and effects.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tenure_core::engine::{self, Effect, Engine, EngineSettings, TokenRange};
use tenure_core::model::{Answer, Request};
use uuid::Uuid;

use crate::clock::ClusterTime;

/// The version of the rules by which entries are applied. It grows with each change after which the same entries give other answers,
/// effects or images; a node stops at an entry that asks for more than it knows.
pub const VERSION: u32 = 1;

/// Tokens that the engine is given at once.
const TOKENS: u64 = 1 << 20;

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// The cluster's time when its leader proposed it.
    pub at: ClusterTime,
    pub operation: Operation,
}

/// A deed at that instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    /// The first one.
    Found(Founding),
    /// A request that changes something.
    Request(Request),
    /// Time passes: what has run out ends.
    Tick,
    /// Nothing is granted for so long: what was granted before a backup was restored may be valid.
    Quarantine(std::time::Duration),
    /// From here on entries are applied as programs of that version do.
    Version(u32),
}

/// The beginning of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Founding {
    /// Another one for each cluster, and for each restored backup.
    pub cluster: Uuid,
    /// Tokens are greater: µs since 1970 when it was founded.
    pub token_floor: u64,
    pub settings: EngineSettings,
}

/// The result of an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Of a request.
    Answer(Answer),
    Done,
    /// Nothing was done: there is no cluster yet, or there is one already.
    Refused,
}

/// A fingerprint of all that was applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest(pub u64);

/// This program does not know how to apply an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cluster applies entries of version {asked}, and this program knows {VERSION}: install the release that \
     the other nodes have"
)]
pub struct TooNew {
    asked: u32,
}

/// A machine at one instant; see [`engine::Image`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Image {
    version: u32,
    cluster: Uuid,
    last_token: u64,
    digest: Digest,
    engine: engine::Image,
}

/// The replicated state machine.
#[derive(Debug, Default)]
pub struct Machine {
    founded: Option<Founded>,
}

#[derive(Debug)]
struct Founded {
    version: u32,
    cluster: Uuid,
    /// The last that the engine may grant.
    last_token: u64,
    digest: Digest,
    engine: Engine,
}

impl Machine {
    /// Applies an entry. The effects are in the order in which they happened.
    ///
    /// # Errors
    ///
    /// When it is of a later version. The machine is as it was, and must apply nothing that follows.
    pub fn apply(&mut self, command: Command) -> Result<(Outcome, Vec<Effect>), TooNew> {
        let Command { at, operation } = command;
        let at = at.of_engine();
        let Some(founded) = &mut self.founded else {
            let Operation::Found(founding) = operation else {
                return Ok((Outcome::Refused, Vec::new()));
            };
            self.founded = Some(Founded::new(founding));
            return Ok((Outcome::Done, Vec::new()));
        };
        let outcome = match operation {
            Operation::Found(_) => Outcome::Refused,
            Operation::Request(request) => Outcome::Answer(founded.engine.handle(at, request)),
            Operation::Tick => {
                founded.engine.handle_timeout(at);
                Outcome::Done
            }
            Operation::Quarantine(rest) => {
                founded.engine.handle_timeout(at);
                founded.engine.quarantine(at + rest);
                Outcome::Done
            }
            Operation::Version(asked) if asked > VERSION => return Err(TooNew { asked }),
            Operation::Version(asked) => {
                founded.version = founded.version.max(asked);
                Outcome::Done
            }
        };
        let effects = founded.effects();
        founded.digest.add(&outcome, &effects);
        Ok((outcome, effects))
    }

    /// The answer to a request that changes nothing, as of an instant; `None` if there is no cluster yet.
    pub fn read(&mut self, at: ClusterTime, request: Request) -> Option<Answer> {
        debug_assert!(request.is_read(), "{request:?} goes through the log");
        Some(self.founded.as_mut()?.engine.handle(at.of_engine(), request))
    }

    /// The instant at which something runs out; `None` if nothing does.
    pub fn poll_timeout(&self) -> Option<ClusterTime> {
        self.founded.as_ref()?.engine.poll_timeout().map(ClusterTime::from)
    }

    /// Its cluster; `None` before the first entry.
    pub fn cluster(&self) -> Option<Uuid> {
        self.founded.as_ref().map(|founded| founded.cluster)
    }

    /// The engine, to look at.
    pub fn engine(&self) -> Option<&Engine> {
        self.founded.as_ref().map(|founded| &founded.engine)
    }

    /// The fingerprint of what was applied.
    pub fn digest(&self) -> Digest {
        self.founded.as_ref().map(|founded| founded.digest).unwrap_or_default()
    }

    /// The machine as it is now; `None` before the first entry. Takes time in proportion to what it knows.
    pub fn freeze(&self) -> Option<Image> {
        let Founded { version, cluster, last_token, digest, engine } = self.founded.as_ref()?;
        let (version, cluster, last_token) = (*version, *cluster, *last_token);
        Some(Image { version, cluster, last_token, digest: *digest, engine: engine.freeze() })
    }

    /// A machine that goes on as the one of the image would.
    ///
    /// # Errors
    ///
    /// When it is of a later version.
    pub fn thaw(image: Option<Image>) -> Result<Machine, TooNew> {
        let Some(Image { version, cluster, last_token, digest, engine }) = image else {
            return Ok(Machine::default());
        };
        if version > VERSION {
            return Err(TooNew { asked: version });
        }
        let engine = Engine::thaw(engine);
        Ok(Machine { founded: Some(Founded { version, cluster, last_token, digest, engine }) })
    }
}

impl Founded {
    fn new(Founding { cluster, token_floor, settings }: Founding) -> Founded {
        let last_token = token_floor.saturating_add(TOKENS);
        let tokens = TokenRange { first: token_floor.saturating_add(1), last: last_token };
        let engine = Engine::new(settings, tokens);
        Founded { version: VERSION, cluster, last_token, digest: Digest::default(), engine }
    }

    /// The effects of a step. Tokens are durable as soon as the entry that grants them is.
    fn effects(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::ReserveTokens => {
                    self.last_token = self.last_token.saturating_add(TOKENS);
                    self.engine.extend_tokens(self.last_token);
                }
                effect => effects.push(effect),
            }
        }
        effects
    }
}

impl Digest {
    fn add(&mut self, outcome: &Outcome, effects: &[Effect]) {
        let mut hash = HashWriter(Sha256::new().chain_update(self.0.to_le_bytes()));
        // Neither a hash nor these shapes can fail.
        let _ = serde_json::to_writer(&mut hash, &(outcome, effects));
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.0.finalize());
        self.0 = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    }
}

struct HashWriter(Sha256);

impl std::io::Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

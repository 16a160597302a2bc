//! PURE. What every node applies, entry by entry: the engine, its tokens, and what makes nodes differ.
//!
//! Invariant: nothing here reads a clock, a file, a socket or a source of randomness. Nodes that have applied the
//! same entries have equal images, and have given equal answers and effects.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tenure_core::engine::{self, Effect, Engine, EngineSettings, OutOfRange, TokenRange};
use tenure_core::model::{Answer, Request};
use tenure_core::time::Boottime;
use uuid::Uuid;

use crate::clock::ClusterTime;
use crate::keys::{self, Keys};

/// The version of the rules by which this program can apply entries. It grows with each change after which the same entries give
/// other answers, effects or images. A cluster goes by the version that all of its nodes know: entries are applied by the
/// rules of that one, also by programs that know later ones, and a node stops at an entry that asks for more than it knows.
///
/// | version | change |
/// |---|---|
/// | 2 | the times of a lease are those of its last beat or its grant, also where that left another time than the claim's ttl |
/// | 3 | a claim of a semaphore may leave a limit that other principals use as it is |
/// | 4 | a session keeps when it was registered |
pub const VERSION: u32 = 4;
/// From this version on a cluster applies `only_own` of a claim of a semaphore.
pub const ONLY_OWN_SINCE: u32 = 3;
/// From this version on a cluster keeps `registered_at` of a session.
const REGISTERED_AT_SINCE: u32 = 4;

/// Tokens that the engine is given at once.
const TOKENS: u64 = 1 << 20;

/// Greatest last token of a backup that is gone on with: a million times [`TOKENS`] are left below 2⁶³, beyond which stores and
/// programs take a token for a negative number.
const LAST_TOKEN_MAX: u64 = i64::MAX.unsigned_abs() - (TOKENS << 20);
/// Longest ttl of a backup: ten years.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);
/// Changes of keys beyond this are none that a cluster has counted.
const KEYS_VERSION_MAX: u64 = 1 << 62;

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
    Found(Box<Founding>),
    /// A request that changes something.
    Request(Request),
    /// A change of the keys of gateways.
    Keys(keys::Change),
    /// Time passes: what has run out ends.
    Tick,
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
    /// The rules that it begins with.
    #[serde(default = "first_version")]
    pub version: u32,
    /// The backup that it goes on from.
    pub restored: Option<Restored>,
}

pub(crate) fn first_version() -> u32 {
    1
}

/// A backup that a cluster begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Restored {
    pub image: Image,
    /// Nothing is granted for so long: what was granted after the backup may be valid.
    pub quarantine: Duration,
}

/// The result of an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Of a request.
    Answer(Answer),
    Keys(keys::Changed),
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
    "the cluster applies entries of version {asked}, and this program knows {known}: install the release that \
     the other nodes have, or that has written the backup"
)]
pub struct TooNew {
    asked: u32,
    known: u32,
}

/// A machine at one instant; see [`engine::Image`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Image {
    version: u32,
    cluster: Uuid,
    last_token: u64,
    digest: Digest,
    engine: engine::Image,
    keys: Keys,
    longest_ttl: Duration,
}

/// The replicated state machine.
#[derive(Debug)]
pub struct Machine {
    /// The version that this program knows.
    known: u32,
    founded: Option<Founded>,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::knowing(VERSION)
    }
}

#[derive(Debug)]
struct Founded {
    version: u32,
    cluster: Uuid,
    /// The last that the engine may grant.
    last_token: u64,
    digest: Digest,
    engine: Engine,
    keys: Keys,
    /// The longest ttl that anybody has asked for.
    longest_ttl: Duration,
}

impl Machine {
    /// A machine that has applied nothing, of a program that knows the rules of a version; [`VERSION`] unless that is to
    /// be tried.
    pub fn knowing(known: u32) -> Machine {
        Machine { known, founded: None }
    }

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
            self.founded = Some(Founded::new(at, *founding, self.known)?);
            return Ok((Outcome::Done, Vec::new()));
        };
        let outcome = match operation {
            Operation::Found(_) => Outcome::Refused,
            Operation::Request(mut request) => {
                if founded.version < REGISTERED_AT_SINCE
                    && let Request::Announce(record) = &mut request
                {
                    // Programs of earlier versions do not keep it: images of nodes would differ.
                    record.registered_at = None;
                }
                let ttl = longest_ttl(&request);
                founded.longest_ttl = founded.longest_ttl.max(ttl);
                Outcome::Answer(founded.engine.handle(at, request))
            }
            Operation::Keys(change) => Outcome::Keys(founded.keys.change(change)),
            Operation::Tick => {
                founded.engine.handle_timeout(at);
                Outcome::Done
            }
            Operation::Version(asked) => {
                TooNew::check(asked, self.known)?;
                founded.go_by(founded.version.max(asked));
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

    /// The version that its program knows.
    pub fn known(&self) -> u32 {
        self.known
    }

    /// The version of the rules by which it applies entries; `None` before the first one.
    pub fn version(&self) -> Option<u32> {
        self.founded.as_ref().map(|founded| founded.version)
    }

    /// The engine, to look at.
    pub fn engine(&self) -> Option<&Engine> {
        self.founded.as_ref().map(|founded| &founded.engine)
    }

    /// The keys of gateways, to look at.
    pub fn keys(&self) -> Option<&Keys> {
        self.founded.as_ref().map(|founded| &founded.keys)
    }

    /// The fingerprint of what was applied.
    pub fn digest(&self) -> Digest {
        self.founded.as_ref().map(|founded| founded.digest).unwrap_or_default()
    }

    /// The machine as it is now; `None` before the first entry. Takes time in proportion to what it knows.
    pub fn freeze(&self) -> Option<Image> {
        let founded = self.founded.as_ref()?;
        Some(Image {
            version: founded.version,
            cluster: founded.cluster,
            last_token: founded.last_token,
            digest: founded.digest,
            engine: founded.engine.freeze(),
            keys: founded.keys.clone(),
            longest_ttl: founded.longest_ttl,
        })
    }

    /// A machine that goes on as the one of the image would, of a program that knows the rules of a version.
    ///
    /// # Errors
    ///
    /// When it is of a later one.
    pub fn thaw(image: Option<Image>, known: u32) -> Result<Machine, TooNew> {
        let founded = image.map(|image| Founded::thaw(image, known)).transpose()?;
        Ok(Machine { known, founded })
    }
}

impl TooNew {
    fn check(asked: u32, known: u32) -> Result<(), TooNew> {
        if asked > known { Err(TooNew { asked, known }) } else { Ok(()) }
    }
}

impl Image {
    /// Looks whether a program that knows the rules of a version can go on with it.
    ///
    /// # Errors
    ///
    /// When it is of a later one.
    pub fn check(&self, known: u32) -> Result<(), TooNew> {
        TooNew::check(self.version, known)
    }

    /// Looks for numbers that no cluster comes to, in an image that is not of this one.
    ///
    /// # Errors
    ///
    /// The first such number, by its field.
    pub fn check_numbers(&self) -> Result<(), OutOfRange> {
        OutOfRange::check("last_token", self.last_token, LAST_TOKEN_MAX)?;
        OutOfRange::check("longest_ttl.secs", self.longest_ttl.as_secs(), TTL_MAX.as_secs())?;
        OutOfRange::check("keys.version", self.keys.version(), KEYS_VERSION_MAX)?;
        self.engine.check(self.last_token)
    }

    /// The version of the rules by which it was made.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The greatest token that the cluster may have granted before the image was taken.
    pub fn last_token(&self) -> u64 {
        self.last_token
    }

    /// The longest ttl that a program asked for before the image was taken.
    pub fn longest_ttl(&self) -> Duration {
        self.longest_ttl
    }

    /// Its cluster.
    pub fn cluster(&self) -> Uuid {
        self.cluster
    }
}

impl Founded {
    fn new(at: Boottime, founding: Founding, known: u32) -> Result<Founded, TooNew> {
        let Founding { cluster, token_floor, settings, version, restored } = founding;
        TooNew::check(version, known)?;
        let last_token = token_floor.saturating_add(TOKENS);
        let Some(Restored { image, quarantine }) = restored else {
            let tokens = TokenRange { first: token_floor.saturating_add(1), last: last_token };
            let mut founded = Founded {
                version,
                cluster,
                last_token,
                digest: Digest::default(),
                engine: Engine::new(settings, tokens),
                keys: Keys::default(),
                longest_ttl: Duration::ZERO,
            };
            founded.go_by(version);
            return Ok(founded);
        };
        let mut founded = Founded::thaw(image, known)?;
        founded.cluster = cluster;
        // Greater than those that were granted after the backup.
        founded.last_token = founded.last_token.max(token_floor).saturating_add(TOKENS);
        founded.engine.extend_tokens(founded.last_token);
        founded.engine.skip_tokens(founded.engine.tokens_left().saturating_sub(TOKENS));
        founded.engine.quarantine(at + quarantine);
        Ok(founded)
    }

    fn thaw(image: Image, known: u32) -> Result<Founded, TooNew> {
        image.check(known)?;
        let Image { version, cluster, last_token, digest, engine, keys, longest_ttl } = image;
        let engine = Engine::thaw(engine);
        let mut founded =
            Founded { version, cluster, last_token, digest, engine, keys, longest_ttl };
        founded.go_by(version);
        Ok(founded)
    }

    /// Applies entries by the rules of this version from now on.
    fn go_by(&mut self, version: u32) {
        self.version = version;
        self.engine.note_beats(version >= 2);
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

/// The longest ttl that a request asks for.
fn longest_ttl(request: &Request) -> Duration {
    match request {
        Request::Claim(claim) => claim.ttl,
        Request::Renew(beats) => beats.iter().map(|beat| beat.ttl).max().unwrap_or_default(),
        _ => Duration::ZERO,
    }
}

impl Digest {
    fn add(&mut self, outcome: &Outcome, effects: &[Effect]) {
        // These shapes cannot fail. A hash takes one text faster than its pieces.
        let text = serde_json::to_vec(&(outcome, effects)).unwrap_or_default();
        let hash = Sha256::new().chain_update(self.0.to_le_bytes()).chain_update(text);
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
        self.0 = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    }
}

#[cfg(test)]
mod tests;

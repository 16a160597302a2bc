//! The keys of gateways, kept beside the holds of the store that they share.

use std::fmt::Debug;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use tenure_core::model::Failure;

/// A question that is under way. It ends within the store's timeout, or that for each 2000 keys.
pub type Asking<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// Most keys that a store has.
pub const KEYS_MAX: usize = 40_000;

/// A key as a store has it. It cannot be shown with that: only the hash of its secret is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    pub id: String,
    pub principal: String,
    /// SHA-256 of the secret, 64 hexadecimal digits.
    pub sha256: String,
    /// What its principal may have, in words that the store need not understand.
    pub bounds: String,
    /// s since 1970; `None` for never.
    pub expires_at: Option<u64>,
    /// s since 1970.
    pub created_at: Option<u64>,
    /// s since 1970, a minute or so behind; `None` if it never was.
    pub used_at: Option<u64>,
    /// The id of the key that a join key was exchanged for.
    pub joined: Option<String>,
}

/// The outcome of adding a key, above all in exchange for a join key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Joined {
    /// The new key is there.
    Done,
    /// It was there by an earlier copy of the same exchange.
    Again,
    /// The join key was exchanged for another key.
    Used,
    /// It was exchanged for this key, which was taken out since.
    Revoked,
    /// There is a key with the new one's id.
    Taken,
    /// The join key was taken out.
    Gone,
    /// There are [`KEYS_MAX`] keys.
    Full,
}

impl Joined {
    /// The outcome that a function of a store tells by its name.
    pub(crate) fn read(name: &str) -> Result<Joined, Failure> {
        Ok(match name {
            "done" => Joined::Done,
            "again" => Joined::Again,
            "used" => Joined::Used,
            "revoked" => Joined::Revoked,
            "taken" => Joined::Taken,
            "gone" => Joined::Gone,
            "full" => Joined::Full,
            other => return Err(Failure::Unknown(format!("put_key answered {other:?}"))),
        })
    }
}

/// Refuses to read more keys than there should be.
pub(crate) fn check_count(count: u64) -> Result<(), Failure> {
    if count <= KEYS_MAX as u64 {
        return Ok(());
    }
    let cause = format!(
        "there are {count} keys in the store, and {KEYS_MAX} at most are read: take some out with keys revoke"
    );
    Err(Failure::Unavailable(cause))
}

/// The keys in a store.
pub trait Keyring: Debug + Send + Sync {
    /// A text that is another one after each change of a key. Uses are no changes.
    fn version(&self) -> Asking<'_, String>;

    /// The ids of all keys, in no order, also where the keys cannot be read.
    fn ids(&self) -> Asking<'_, Vec<String>>;

    /// All keys, in no order.
    fn all(&self) -> Asking<'_, Vec<KeyRecord>>;

    /// The key with that id.
    fn one(&self, id: String) -> Asking<'_, Option<KeyRecord>>;

    /// Takes keys out; how many of them were there.
    fn remove(&self, ids: Vec<String>) -> Asking<'_, u64>;

    /// Adds a key, or puts it in the place of one with its id: [`Joined::Done`] or [`Joined::Full`]. In exchange for a
    /// join key it is added once, however many ask at the same time, and not again once somebody took it out.
    fn add(&self, key: KeyRecord, join: Option<String>) -> Asking<'_, Joined>;

    /// Notes when keys were used last.
    fn used(&self, keys: Vec<(String, u64)>) -> Asking<'_, ()>;

    /// Puts keys back into a store that came back without its data, in one step: the first that does is the only one.
    /// False, and nothing is changed, if keys were changed since the store came back.
    fn restore(&self, _keys: Vec<KeyRecord>) -> Asking<'_, bool> {
        Box::pin(async { Ok(false) })
    }

    /// Has a store that lost data grant again, by an administrator's word. False if it is in no quarantine.
    fn end_quarantine(&self) -> Asking<'_, bool> {
        Box::pin(async { Ok(false) })
    }

    /// True if no key was ever changed in this store, as far as it knows.
    fn is_new(&self) -> Asking<'_, bool> {
        Box::pin(async { Ok(false) })
    }
}

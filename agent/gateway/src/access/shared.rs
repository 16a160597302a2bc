//! Keys in the store, which every gateway over it goes by.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use tenure_core::model::Failure;
use tenure_stores::keyring::{Joined, KeyRecord, Keyring};
use tokio::sync::{Mutex, MutexGuard};
use tracing::{error, info, warn};

use super::edit::{Edit, EditError};
use super::file::{Keys, KeysError};
use super::now;
use super::written::WrittenKey;
use tenure_stores::gateway::key::{KeyId, New, SecretHash};

/// How long keys are listed after their end, s: clocks may differ by as much.
const EXPIRED_KEPT_S: u64 = 24 * 60 * 60;

/// The keys of a store.
#[derive(Debug, Clone)]
pub struct StoreKeys(Arc<dyn Keyring>, Arc<Mutex<()>>, Arc<KeyCache>);

/// The keys that were read last, for a store that comes back without its data.
type KeyCache = std::sync::Mutex<Vec<KeyRecord>>;

/// Why the keys of a store cannot be changed. They stay as they were, or the change is not whole and can be
/// made again.
#[derive(Debug, thiserror::Error)]
pub enum StoreKeysError {
    #[error("{}; the gateways go on with the keys that they know", .0.cause())]
    Store(Failure),
    #[error(transparent)]
    Edit(#[from] EditError),
}

impl From<Failure> for StoreKeysError {
    fn from(failure: Failure) -> StoreKeysError {
        StoreKeysError::Store(failure)
    }
}

impl StoreKeys {
    pub fn new(ring: Arc<dyn Keyring>) -> StoreKeys {
        StoreKeys(ring, Arc::default(), Arc::default())
    }

    /// The turn of whoever reads all keys, to go by them.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.1.lock().await
    }

    /// A text that is another one after each change.
    ///
    /// # Errors
    ///
    /// As the store fails.
    pub async fn version(&self) -> Result<String, Failure> {
        self.0.version().await
    }

    /// All keys. An unreadable key is logged, and admits no caller. A store that came back without its data gets the
    /// keys that were read last: without keys it would have every caller refused for good.
    ///
    /// # Errors
    ///
    /// As the store fails.
    pub async fn read(&self) -> Result<Keys, Failure> {
        let mut records = self.0.all().await?;
        if records.is_empty() && self.has_lost_all().await? {
            let kept = self.kept().clone();
            let count = kept.len();
            match self.0.restore(kept).await? {
                true => warn!(
                    keys = count,
                    "the store came back without its keys: they were put back as this gateway knew them; a store \
                     that loses its data loses holds as well, see docs/redis.md"
                ),
                false => {
                    info!("the store came back without its keys, and another gateway put them back")
                }
            }
            records = self.0.all().await?;
        }
        self.kept().clone_from(&records);
        let mut keys = Keys::default();
        for record in records {
            let id = record.id.clone();
            let added = written(record).and_then(|key| keys.add_one(key));
            if let Err(error) = added {
                error!(key = id, "a key in the store lets nobody in: {error}");
            }
        }
        Ok(keys)
    }

    /// The ids of all keys, also where the keys cannot be read.
    ///
    /// # Errors
    ///
    /// As the store fails.
    pub async fn ids(&self) -> Result<HashSet<KeyId>, Failure> {
        let mut ids = self.0.ids().await?;
        if ids.is_empty() && self.has_lost_all().await? {
            // No administrator took these keys out: they are put back once the store takes writes.
            ids = self.kept().iter().map(|key| key.id.clone()).collect();
        }
        Ok(ids.iter().filter_map(|id| KeyId::parse(id)).collect())
    }

    /// True if the store had keys, and has lost all of them with its data.
    async fn has_lost_all(&self) -> Result<bool, Failure> {
        Ok(!self.kept().is_empty() && self.0.is_new().await?)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<KeyRecord>> {
        self.2.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes keys that expired so long ago that no gateway's clock lets them in.
    ///
    /// # Errors
    ///
    /// As the store fails.
    pub async fn remove_expired(&self) -> Result<(), Failure> {
        let before = now().saturating_sub(EXPIRED_KEPT_S);
        let keys = self.0.all().await?.into_iter();
        let expired = keys.filter(|key| key.expires_at.is_some_and(|at| at <= before));
        self.0.remove(expired.map(|key| key.id).collect()).await.map(drop)
    }

    /// Notes when keys were used last.
    ///
    /// # Errors
    ///
    /// As the store fails.
    pub async fn used(&self, keys: Vec<(KeyId, u64)>) -> Result<(), Failure> {
        let keys = keys.into_iter().map(|(id, at)| (id.to_string(), at)).collect();
        self.0.used(keys).await
    }

    /// Changes the keys; the new one, where there is one.
    ///
    /// # Errors
    ///
    /// See [`StoreKeysError`].
    pub async fn carry_out(&self, edit: &Edit) -> Result<Option<New>, StoreKeysError> {
        edit.check()?;
        match edit {
            Edit::Add { principal, expires_at, bounds } => {
                let made = if bounds.once { New::make_join() } else { New::make() };
                let new = made.map_err(EditError::NoRandomness)?;
                let key = WrittenKey::of(&new, principal, *expires_at, bounds);
                match self.put(key.clone()).await {
                    Err(StoreKeysError::Edit(EditError::Full)) => {
                        self.remove_expired().await?;
                        self.put(key).await?;
                    }
                    put => put?,
                }
                Ok(Some(new))
            }
            Edit::Rotate { id, old_expires_at, expires_at } => {
                let old = self.find(*id).await?;
                if old.bounds.once {
                    return Err(EditError::JoinKey(*id).into());
                }
                let new = New::make().map_err(EditError::NoRandomness)?;
                self.put(WrittenKey::of(&new, &old.principal, *expires_at, &old.bounds)).await?;
                // One that ends earlier goes on to do so.
                let at = old.expires_at.map_or(*old_expires_at, |at| at.min(*old_expires_at));
                self.put(WrittenKey { expires_at: Some(at), ..old }).await?;
                Ok(Some(new))
            }
            Edit::Revoke { id } => match self.0.remove(vec![id.to_string()]).await? {
                0 => Err(EditError::NoKey(*id).into()),
                _ => Ok(None),
            },
        }
    }

    /// Exchanges a join key for that one, of the same principal with the same bounds. May be repeated.
    ///
    /// # Errors
    ///
    /// See [`StoreKeysError`].
    pub async fn join(
        &self,
        join: KeyId,
        id: KeyId,
        hash: SecretHash,
    ) -> Result<Joined, StoreKeysError> {
        let WrittenKey { principal, mut bounds, .. } = self.find(join).await?;
        bounds.once = false;
        let bounds = serde_json::to_string(&bounds)
            .map_err(|error| EditError::Keys(KeysError::NotKeys(error.to_string())))?;
        let key = KeyRecord {
            id: id.to_string(),
            principal,
            sha256: hash.to_string(),
            bounds,
            expires_at: None,
            created_at: Some(now()),
            ..KeyRecord::default()
        };
        Ok(self.0.add(key, Some(join.to_string())).await?)
    }

    async fn find(&self, id: KeyId) -> Result<WrittenKey, StoreKeysError> {
        let record = self.0.one(id.to_string()).await?.ok_or(EditError::NoKey(id))?;
        Ok(written(record).map_err(EditError::Keys)?)
    }

    async fn put(&self, key: WrittenKey) -> Result<(), StoreKeysError> {
        // What no gateway could read is not written.
        Keys::default().add_one(key.clone()).map_err(EditError::Keys)?;
        let WrittenKey { id, principal, sha256, expires_at, created_at, bounds, .. } = key;
        let bounds = serde_json::to_string(&bounds)
            .map_err(|error| EditError::Keys(KeysError::NotKeys(error.to_string())))?;
        let created_at = created_at.or(Some(now()));
        let own = KeyRecord { id, principal, sha256, bounds, expires_at, ..KeyRecord::default() };
        match self.0.add(KeyRecord { created_at, ..own }, None).await? {
            Joined::Done => Ok(()),
            _ => Err(EditError::Full.into()),
        }
    }
}

fn written(record: KeyRecord) -> Result<WrittenKey, KeysError> {
    let KeyRecord { id, principal, sha256, bounds, expires_at, created_at, used_at, joined } =
        record;
    // A bound that this version does not know must not be left out.
    let bounds = serde_json::from_str(&bounds).map_err(|error| KeysError::Key {
        id: id.clone(),
        rule: format!("its bounds cannot be read: {error}"),
    })?;
    Ok(WrittenKey { id, principal, sha256, expires_at, created_at, used_at, joined, bounds })
}

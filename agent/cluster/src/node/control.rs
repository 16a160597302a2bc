//! Answers administrators and gateways.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tenure_core::engine::EngineSettings;
use tenure_host::clock;

use super::room::Room;
use super::{Inner, Node, View};
use crate::backup::Backup;
use crate::clock::ClusterTime;
use crate::control::{Control, KeysRead, MemberStatus, ReadKeys, Report, Status};
use crate::machine::{Image, Restored, TTL_MAX};
use crate::net::{IMAGE_MAX, PART};

/// The shortest rest after a restore that is not given: nobody need have asked for a ttl before the backup.
const QUARANTINE_MIN: Duration = Duration::from_secs(90);
/// Most grants of a cluster after its last known entry: those of a week at 7000 a second.
const GRANTS_MAX: u64 = 1 << 32;
pub(super) const ASTRAY: &str = "the leader answers another question";
/// The time in which an image is kept, and the log before it goes.
const CUT_MAX: Duration = Duration::from_secs(120);
/// The time in which a backup is fetched.
const FETCH_MAX: Duration = Duration::from_secs(600);
/// Most bytes of a backup: a node takes it as it takes an image, and keeps it in one entry of its log until that is cut.
const BACKUP_MAX: usize = IMAGE_MAX;

/// The things that administrators come for one at a time, and the bound that they set.
pub(super) struct Office {
    pub(super) room: Room,
    fetched: Mutex<Fetched>,
    /// A node is added, or the cluster goes over to later rules: not both, since all nodes must know the rules.
    pub(super) versions: Arc<tokio::sync::Mutex<()>>,
    /// Entries about members come one at a time: none from a leader that has just been taken out.
    pub(super) members: tokio::sync::Mutex<()>,
    /// A cluster is founded once.
    pub(super) founding: tokio::sync::Mutex<()>,
}

impl Office {
    pub(super) fn with(room: Room) -> Office {
        Office {
            room,
            fetched: Mutex::default(),
            versions: Arc::default(),
            members: tokio::sync::Mutex::default(),
            founding: tokio::sync::Mutex::default(),
        }
    }
}

/// PURE. A floor above all tokens that were granted after an image. The wall clock in µs is above them as a rule: a
/// cluster grants less than one a microsecond. The image's last token counts, too, since the clock may have been set
/// back.
fn floor_after(image: &Image, wall_us: u64) -> u64 {
    wall_us.max(image.last_token().saturating_add(GRANTS_MAX))
}

/// A backup that is fetched. The node has one at a time.
#[derive(Default)]
struct Fetched {
    number: u64,
    text: Arc<str>,
}

/// Has a backup forgotten that nobody has fetched to its end. Sleep of the machine does no harm.
async fn forget(node: Weak<Inner>, number: u64) {
    let _ = tokio::time::timeout(FETCH_MAX, std::future::pending::<()>()).await;
    let Some(node) = node.upgrade().map(Node) else { return };
    let mut fetched = node.fetched();
    if fetched.number == number {
        fetched.text = Arc::default();
    }
}

impl Node {
    /// The answer to an administrator or a gateway; `body` is what came with the question.
    pub(crate) async fn control(&self, control: Control, body: Vec<u8>) -> Result<Report, String> {
        match control {
            Control::Status => Ok(Report::Status(Box::new(self.status().await))),
            Control::Init => self.begin(None).await.map(Report::Founded),
            Control::Restore { quarantine } => self.restore(&body, quarantine).await,
            Control::Add { .. } | Control::Remove { .. } => self.change_members(control).await,
            Control::Backup => self.take_backup().await,
            Control::Part { backup, from } => self.part(backup, from),
            Control::Keys(change) => Ok(Report::Keys(self.change_keys(change).await)),
            Control::ReadKeys(read) => Ok(Report::KeysRead(self.read_keys(read).await)),
        }
    }

    pub(super) async fn status(&self) -> Status {
        let view = self.view();
        let stopped = self.halted();
        let others = self.ask_others(view.applied).await;
        let own = self.attest(view.applied);
        let members = self.members().into_iter().map(|(id, address)| {
            let told = match id == self.id() {
                true => Some(own),
                false => others.get(&id).copied().flatten(),
            };
            let votes = view.voters.contains_key(&id);
            let (applied, known) = (told.map(|it| it.applied), told.map(|it| it.known));
            let trouble = self.0.ways.deliveries().cause(id);
            (id, MemberStatus { address, votes, applied, known, trouble })
        });
        let members = members.collect();
        let View { cluster, leader, version, .. } = view;
        let (bytes, bytes_max) = self.bytes();
        Status { node: self.id(), cluster, leader, stopped, version, members, bytes, bytes_max }
    }

    pub(super) async fn begin(
        &self,
        restored: Option<(ClusterTime, Restored)>,
    ) -> Result<uuid::Uuid, String> {
        let settings = EngineSettings::default();
        let (address, wall) = (self.0.address.clone(), clock::wall_us());
        let floor = restored.as_ref().map_or(wall, |(_, from)| floor_after(&from.image, wall));
        let founded = self.found(address, floor, settings, restored).await;
        founded.map_err(|error| error.to_string())
    }

    async fn take_backup(&self) -> Result<Report, String> {
        let taken = self.look(|machine, at| (machine.freeze(), at)).await;
        let (image, stamp) = taken.map_err(|failure| {
            let way_out = match self.view().cluster {
                Some(_) => {
                    "; without the others: stop this node, and name its folder with --from-folder"
                }
                None => "",
            };
            format!("{}{way_out}", failure.cause())
        })?;
        let Some(image) = image else { return Err("there is no cluster yet".to_owned()) };
        let text = Backup { taken_at_us: clock::wall_us(), stamp, image }.text();
        if text.len() > BACKUP_MAX {
            return Err(format!(
                "the backup has {} bytes, and {BACKUP_MAX} at most can be restored: release holds or end sessions, and lower \
                 cluster.bytes_max",
                text.len()
            ));
        }
        let mut fetched = self.fetched();
        let (number, bytes) = (fetched.number + 1, text.len());
        *fetched = Fetched { number, text: text.into() };
        drop(fetched);
        tokio::spawn(forget(Arc::downgrade(&self.0), number));
        Ok(Report::Backup { backup: number, bytes })
    }

    fn part(&self, backup: u64, from: usize) -> Result<Report, String> {
        let mut fetched = self.fetched();
        if fetched.number != backup {
            return Err("another backup was taken meanwhile: try again".to_owned());
        }
        let rest = fetched.text.get(from..).unwrap_or_default();
        let end = (0..=PART.min(rest.len())).rev().find(|end| rest.is_char_boundary(*end));
        let part = rest.get(..end.unwrap_or_default()).unwrap_or_default().to_owned();
        if part.len() == rest.len() {
            fetched.text = Arc::default();
        }
        Ok(Report::Part(part))
    }

    fn fetched(&self) -> std::sync::MutexGuard<'_, Fetched> {
        self.0.office.fetched.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn restore(&self, text: &[u8], quarantine: Option<Duration>) -> Result<Report, String> {
        let Backup { stamp, image, .. } = Backup::read(text).map_err(|error| error.to_string())?;
        let known = self.0.machine.look(|machine, _| machine.known());
        // In the log it would stop this node for good.
        image.check(known).map_err(|error| error.to_string())?;
        if let Some(long) = quarantine.filter(|it| *it > TTL_MAX) {
            return Err(format!("quarantine = {long:?} must be {TTL_MAX:?} at most"));
        }
        let quarantine = quarantine.unwrap_or_else(|| image.longest_ttl().max(QUARANTINE_MIN));
        let cluster = self.begin(Some((stamp, Restored { image, quarantine }))).await?;
        self.cut_log().await.map_err(|error| {
            format!("cluster {cluster} has begun, but no node can be added yet: {error}; restart this one")
        })?;
        Ok(Report::Restored { cluster, quarantine })
    }

    /// Puts an image in the place of the log: nodes that are added are given that, and not entries of any size.
    pub(super) async fn cut_log(&self) -> Result<(), String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let (raft, upto) = (&self.0.raft, self.view().applied);
        let reached = |id: Option<u64>| id >= Some(upto);
        raft.trigger().snapshot().await.map_err(|error| words(&error))?;
        let kept = raft.wait(Some(CUT_MAX));
        let is_kept = kept.metrics(|it| reached(it.snapshot.as_ref().map(|id| id.index)), "image");
        is_kept.await.map_err(|error| words(&error))?;
        raft.trigger().purge_log(upto).await.map_err(|error| words(&error))?;
        let cut = raft.wait(Some(CUT_MAX));
        let is_cut = cut.metrics(|it| reached(it.purged.as_ref().map(|id| id.index)), "cut");
        is_cut.await.map(drop).map_err(|error| words(&error))
    }

    async fn read_keys(&self, read: ReadKeys) -> Result<KeysRead, tenure_core::model::Failure> {
        let read = |machine: &crate::machine::Machine, _| {
            let keys = machine.keys()?;
            Some(match read {
                ReadKeys::Version => {
                    let cluster = machine.cluster().unwrap_or_default();
                    KeysRead::Version(format!("{cluster}-{}", keys.version()))
                }
                ReadKeys::Ids => KeysRead::Ids(keys.ids()),
                ReadKeys::All => KeysRead::All(keys.all()),
                ReadKeys::One(id) => KeysRead::All(keys.one(&id).into_iter().collect()),
            })
        };
        self.look(read).await?.ok_or_else(super::unfounded)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::machine::{Command, Founding, Machine, Operation, VERSION};

    #[test]
    fn tokens_rise_also_where_the_clock_on_the_wall_was_set_back() {
        let mut machine = Machine::default();
        let (cluster, token_floor) = (Uuid::from_u128(7), 1_000_000);
        let settings = EngineSettings::default();
        let founding =
            Founding { cluster, token_floor, settings, version: VERSION, restored: None };
        let operation = Operation::Found(Box::new(founding));
        machine.apply(Command { at: ClusterTime::default(), operation }).unwrap();
        let image = machine.freeze().unwrap();
        assert!(image.last_token() > token_floor);
        assert_eq!(floor_after(&image, 5), image.last_token() + GRANTS_MAX);
        assert_eq!(floor_after(&image, 1 << 50), 1 << 50);
    }
}

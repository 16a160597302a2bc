//! The agent's parts, put together.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tenure_core::keeper::Presence;
use tenure_core::model::SessionId;
use tenure_host::directory::{Directory, DirectoryError};
use tenure_host::page::{PAGES, Pages};
use tenure_host::service_manager::Notifier;
use tenure_host::{clock, machine};
use tenure_stores::journal::{Files, Fresh, SavedKeeper};
use tenure_stores::settings::{OpenError, Opened, Opener, Place};
use tenure_wire::AgentInfo;
use tracing::{info, warn};
use uuid::Uuid;

use super::fit::{Fitted, Means};
use crate::api::{self, About};
use crate::config::Config;
use crate::heart::{self, Handle, Heart, Parts};
use crate::policy::SharedPolicy;
use crate::telemetry::Metrics;
use crate::telemetry::log::Filter;

/// Most histories that refusals ask the store for at once.
const PASTS_AT_ONCE: usize = 16;

/// Why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// The kernel does not say which boot this is, or gives no randomness, or no thread.
    #[error("the system does not give what the agent needs")]
    System(#[from] io::Error),
    /// The store, or the journal beside it.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The pages.
    #[error(transparent)]
    Pages(#[from] DirectoryError),
}

/// A running heart, and what the API needs to know of it.
pub struct Assembled {
    /// The heart's thread.
    pub heart: Heart,
    /// The context of every endpoint.
    pub context: Arc<api::Context>,
    /// The guarantee of the upstream.
    pub guarantee: String,
}

/// Things that the agent's parts share with the rest of its life.
pub struct Given<'a> {
    /// The `[[allow]]` rules.
    pub policy: &'a SharedPolicy,
    pub metrics: &'a Arc<Metrics>,
    /// `--runtime-dir`, locked.
    pub runtime_dir: Directory,
    /// `--state-dir`, locked.
    pub state_dir: Directory,
    /// The filter of the log.
    pub filter: &'a Filter,
    /// The way to the service manager.
    pub notifier: Notifier,
    /// Handles on processes that the service manager kept.
    pub processes: HashMap<SessionId, OwnedFd>,
}

/// Opens the journal and the store, takes up what they know, and starts the heart. The service manager
/// kept `processes` for it, and is told by `notifier` what to keep.
///
/// # Errors
///
/// See [`AssembleError`].
pub fn assemble(
    config: &Config,
    means: Means,
    given: Given<'_>,
) -> Result<Assembled, AssembleError> {
    let Given { policy, metrics, runtime_dir, state_dir, filter, notifier, processes } = given;
    let boot_id = machine::boot_id()?;
    let Fitted { limits, mut settings, buffered_bytes, reductions } =
        means.fit(&config.limits, &config.settings);
    reductions.log(|key| config.limits_set.contains(&key));
    let (started, upstream) = (clock::now(), config.stores.upstream());
    settings.presence = Some(Presence {
        agent: SessionId(machine::agent_id(&state_dir, boot_id)),
        version: env!("CARGO_PKG_VERSION").into(),
        started,
        is_shown: upstream.address().is_some(),
    });
    let parts = PartsMaker {
        opener: Arc::clone(&config.opener),
        settings: settings.clone(),
        runtime_dir: runtime_dir.clone(),
        state_dir: state_dir.clone(),
        boot_id,
        metrics: Arc::clone(metrics),
        notifier,
        processes,
    };
    let guarantee = upstream.guarantee().to_owned();
    let (heart, handle): (Heart, Handle) =
        heart::spawn(buffered_bytes, Arc::clone(metrics), move || parts.make())?;
    let about = About {
        agent: AgentInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host_id: machine::host_id(&state_dir)?,
            upstream: upstream.kind().to_owned(),
            guarantee: guarantee.clone(),
        },
        finds_guarantee: upstream.finds_guarantee(),
        host: config.settings.host.to_string(),
        address: upstream.address(),
        boot_id,
        pages: runtime_dir.join(PAGES),
        requires_fleet: config.requires_fleet,
    };
    let limits = api::Limits::of(&limits);
    let context = api::Context {
        heart: handle,
        settings: Arc::new(settings),
        limits,
        long: crate::api::Turns::default(),
        places: api::Places::new(&limits, config.settings.agent_uid, Arc::clone(metrics)),
        about,
        policy: policy.clone(),
        metrics: Arc::clone(metrics),
        log: filter.clone(),
        pasts: tokio::sync::Semaphore::new(PASTS_AT_ONCE),
        examining: tokio::sync::Mutex::default(),
        started,
    };
    Ok(Assembled { heart, context: Arc::new(context), guarantee })
}

/// The means by which the heart's thread makes its own parts.
struct PartsMaker {
    opener: Arc<dyn Opener>,
    settings: tenure_core::keeper::Settings,
    runtime_dir: Directory,
    state_dir: Directory,
    boot_id: Uuid,
    metrics: Arc<Metrics>,
    notifier: Notifier,
    processes: HashMap<SessionId, OwnedFd>,
}

impl PartsMaker {
    fn make(self) -> Result<Parts, AssembleError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
        let runtime_dir = Box::new(Files::of(self.runtime_dir.clone()));
        let pages = Pages::in_directory(&self.runtime_dir, self.boot_id)?;
        let now = clock::now();
        let catch_up = |saved: &mut SavedKeeper| {
            saved.catch_up(now, |hold, slots| {
                pages.shown_until(hold.claim.owner.session, slots, hold.slot, hold.claim.id)
            });
        };
        let Opened { store: upstream, journal, saved } = self.opener.open(Place {
            runtime_dir,
            state_dir: Box::new(Files::of(self.state_dir)),
            boot_id: self.boot_id,
            now,
            wall_clock_us: clock::wall_us(),
            catch_up: &catch_up,
        })?;
        match journal.borrow().fresh() {
            Some(Fresh::Missing) | None => {}
            Some(Fresh::OtherBoot) => info!("the machine was booted: the journal starts anew"),
            Some(why) => warn!("{why}; it starts anew"),
        }
        let refusal = journal.borrow().refusal().map(ToString::to_string);
        if let Some(error) = refusal.or(upstream.health().last_error) {
            warn!("{error}");
        }
        Ok(Parts {
            settings: self.settings,
            seed,
            saved,
            journal,
            pages,
            upstream,
            metrics: self.metrics,
            notifier: self.notifier,
            kept: self.processes,
        })
    }
}

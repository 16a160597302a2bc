//! The agent's parts, put together.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use tenure_core::model::SessionId;
use tenure_host::directory::{Directory, DirectoryError};
use tenure_host::page::Pages;
use tenure_host::service_manager::Notifier;
use tenure_host::{clock, machine};
use tenure_stores::Upstream;
use tenure_stores::embedded::{self, EngineSettings};
use tenure_stores::journal::{self, Ahead, Files, Fresh, Journal, OpenError, SavedKeeper};
use tenure_stores::redis::address::Address;
use tenure_stores::redis::settings::RedisUpstream;
use tenure_stores::redis::{self, Redis, RedisSettings};
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

/// Ended claims that a store within this process remembers: its calls take effect in the turn in which they are
/// sent, so that no copy of them can be late.
const TOMBSTONES_MAX: usize = 16_384;

/// Why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// The kernel does not say which boot this is, or gives no randomness, or no thread.
    #[error("the system does not give what the agent needs")]
    System(#[from] io::Error),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The pages.
    #[error(transparent)]
    Pages(#[from] DirectoryError),
    /// The embedded store.
    #[error(transparent)]
    Embedded(#[from] embedded::OpenError),
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
    let Fitted { limits, settings, buffered_bytes } = means.fit(&config.limits, &config.settings);
    let parts = PartsMaker {
        redis: config.redis.clone(),
        settings: settings.clone(),
        runtime_dir: runtime_dir.clone(),
        state_dir: state_dir.clone(),
        boot_id,
        metrics: Arc::clone(metrics),
        notifier,
        processes,
    };
    let guarantee = match config.redis {
        None => embedded::GUARANTEE,
        Some(_) => redis::GUARANTEE,
    };
    let guarantee = guarantee.to_owned();
    let (heart, handle): (Heart, Handle) =
        heart::spawn(buffered_bytes, Arc::clone(metrics), move || parts.make())?;
    let about = About {
        agent: AgentInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host_id: machine::host_id(&state_dir)?,
            upstream: config.upstream.kind().to_owned(),
            guarantee: guarantee.clone(),
        },
        host: config.settings.host.to_string(),
        address: config.upstream.address(),
        boot_id,
        pages: runtime_dir.join("pages"),
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
        examining: tokio::sync::Mutex::default(),
        started: clock::now(),
    };
    Ok(Assembled { heart, context: Arc::new(context), guarantee })
}

/// The means by which the heart's thread makes its own parts.
struct PartsMaker {
    redis: Option<RedisUpstream>,
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
        let (upstream, journal, saved): (Box<dyn Upstream>, _, _) = match self.redis {
            None => {
                let state_dir = Box::new(Files::of(self.state_dir.clone()));
                let wall_clock_us = clock::wall_us();
                let place = embedded::Place {
                    boot_id: self.boot_id,
                    now,
                    wall_clock_us,
                    ahead: Ahead::default(),
                    engine: EngineSettings {
                        tombstones_max: TOMBSTONES_MAX,
                        ..EngineSettings::default()
                    },
                };
                let opened = embedded::open(runtime_dir, state_dir, place, catch_up, |disk| {
                    Ok(Box::new(journal::Thread::start(disk)?))
                })?;
                (Box::new(opened.store), opened.journal, opened.saved)
            }
            Some(RedisUpstream { access, layout }) => {
                let (journal, mut found) =
                    Journal::open(runtime_dir, self.boot_id, None, Ahead::default())?;
                catch_up(&mut found.keeper);
                let settings = RedisSettings { timeout: access.timeout, layout };
                let redis = Redis::open(Arc::new(Address::new(access)), settings);
                (Box::new(redis), Rc::new(RefCell::new(journal)), found.keeper)
            }
        };
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

//! The `tenured-gateway` daemon: its whole life, from the command line to the exit code.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error};
use tenure_gateway::access::{Access, Keys, Stamp};
use tenure_gateway::delivery::{Delivery, Networks, Told};
use tenure_gateway::face::{self, Budgets, ControlPlane, Face, Hosts, People, Plane};
use tenure_gateway::keys::{Place, keys_of};
use tenure_gateway::local_key::{self, LocalKey};
use tenure_gateway::metrics::Metrics;
use tenure_gateway::settings::{self, Cli, Command, Environment, Loaded, Settings};
use tenure_gateway::store::{Store, Thread};
use tenure_gateway::tls::Tls;
use tenure_gateway::trail::{self, Trail};
use tenure_gateway::{Follow, Reload, Reports, gateway_run, store};
use tenure_host::directory::Directory;
use tenure_host::service_manager::{self, Handed, Notifier};
use tenure_host::signals::{Signal, Signals};
use tenure_host::{clock, machine};
use tenure_service::command_line;
use tenure_service::prepare::{Prepared, Wanted, prepare};
use tenure_service::telemetry::log;
use tenure_stores::gateway::wire::StoreInfo;
use tenure_stores::journal::Files;
use tenure_stores::settings::{OpenError, Opener};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// An address or a directory cannot be used.
const UNAVAILABLE: u8 = 69;
/// Wrong configuration, or a store that somebody must look at: a service manager does not start it again.
const CONFIG: u8 = 78;

/// How often the end of a certificate is looked at.
const DAY: Duration = Duration::from_secs(24 * 3600);

fn main() -> ExitCode {
    let cli: Cli = match command_line::parse("tenured-gateway") {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    // Before there is any secret.
    let private = machine::keep_memory_private();
    let done = match (&cli.command, settings::load(&cli.flags, &Environment::of_process())) {
        // A file that is named takes no settings.
        (Some(Command::Keys(command)), loaded) => match (&cli.flags.keys_file, loaded) {
            (Some(file), _) => command.run(Place::File(PathBuf::from(file))).map_err(unavailable),
            (None, Ok(loaded)) => command.run(place_of_keys(&loaded.config)).map_err(unavailable),
            (None, Err(_)) if command.takes_no_place() => {
                command.run(Place::None).map_err(unavailable)
            }
            (None, Err(error)) => Err((CONFIG, error.into())),
        },
        (_, Err(error)) => Err((CONFIG, error.into())),
        (Some(Command::Cluster(command)), Ok(loaded)) => {
            command.run(&loaded.config.stores).map_err(unavailable)
        }
        (Some(Command::Quarantine(command)), Ok(loaded)) => command
            .run(&*loaded.config.opener)
            .map_err(unavailable)
            .and_then(|done| print(&format!("{done}\n"))),
        (Some(Command::Page), Ok(loaded)) => local_key::page(&loaded.config)
            .map_err(unavailable)
            .and_then(|address| print(&format!("{address}\n"))),
        (Some(Command::CheckConfig { sql: true }), Ok(_)) => print(&tenure_stores::postgres::sql()),
        (Some(Command::CheckConfig { .. }), Ok(loaded)) => check(&loaded),
        (None, Ok(loaded)) => serve(cli, loaded, private),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, error)) => {
            eprintln!("tenured-gateway: {error:#}");
            ExitCode::from(code)
        }
    }
}

/// Prints what is in effect, once all that it names is good.
fn check(loaded: &Loaded) -> Result<(), (u8, Error)> {
    for warning in &loaded.warnings {
        eprintln!("tenured-gateway: {warning}");
    }
    if let Some(place) = loaded.config.file_of_keys() {
        place.read().map_err(|error| (CONFIG, error))?;
    }
    read_tls(&loaded.config)?;
    print(&loaded.effective())
}

fn print(text: &str) -> Result<(), (u8, Error)> {
    io::stdout().write_all(text.as_bytes()).context("cannot write").map_err(unavailable)
}

/// The certificates, if TLS is to be spoken.
fn read_tls(settings: &Settings) -> Result<Option<Tls>, (u8, Error)> {
    let files = settings.tls_files().map_err(|broken| (CONFIG, Error::msg(broken.rule)))?;
    files.map(Tls::read).transpose().map_err(|error| (CONFIG, error.into()))
}

/// Opens the store, binds, serves and drains.
fn serve(cli: Cli, loaded: Loaded, private: io::Result<()>) -> Result<(), (u8, Error)> {
    let Loaded { config: settings, warnings, .. } = loaded;
    // Before any thread: it changes the environment.
    let handed = service_manager::take().map_err(unavailable)?;
    let metrics = Arc::new(Metrics::new());
    let dropped = metrics.log_lines_dropped.clone();
    let log = log::start("tenured-gateway", &settings.log, settings.log_format, dropped);
    let log = log.map_err(unavailable)?;
    warnings.iter().chain(&handed.notices).for_each(|warning| warn!("{warning}"));
    if let Err(error) = private {
        warn!(%error, "passwords could get into core dumps: their limit cannot be lowered");
    }
    if let Err(error) = tenure_gateway::give_memory_back() {
        warn!(%error, "memory of a burst is kept: there is no thread that would give it back");
    }
    // Before they are read: what changes meanwhile is noticed.
    let place = settings.file_of_keys();
    let stamp = place.as_ref().and_then(|place| Stamp::of(&place.path));
    let local = LocalKey::make(&settings).map_err(unavailable)?;
    let (local, own_keys) = local.unzip();
    let access = match place {
        _ if let Some(keys) = own_keys => Access::keys(keys),
        // They are read once the store is there.
        None if settings.keys_in_store => Access::keys(Keys::default()),
        None if settings.tls.clients.is_some() => Access::certificates(),
        None => Access::anybody(),
        Some(place) => {
            let keys = place.read().map_err(|error| (CONFIG, error))?;
            metrics.keys.set(keys.count() as u64);
            Access::keys(keys)
        }
    };
    let access = access.with_certificate_rights(settings.certificate_rights);
    let access = access.with_people(settings.sign_in());
    let trail = match &settings.audit {
        None => Trail::default(),
        Some(path) => {
            let kept = Trail::keep(trail::Place::named(path), settings.audit_limits);
            kept.with_context(|| format!("audit = {path:?}: must be a file that can be written to, in a directory that is there")).map_err(unavailable)?
        }
    };
    let tls = read_tls(&settings)?.map(Arc::new);
    metrics.certificate_expires.set(tls.as_ref().map_or(0, |tls| tls.expires_at()));
    let environment = Environment::of_process();
    let reload = Reload { flags: cli.flags, environment, settings, log, metrics, stamp, tls };
    run(reload, access, local, trail, handed).map_err(|error| match error.downcast_ref() {
        Some(OpenError::Refused(_)) => (CONFIG, error),
        _ => unavailable(error),
    })
}

/// Where the keys are that a command is about.
fn place_of_keys(settings: &Settings) -> Place {
    match settings.file_of_keys() {
        Some(file) => Place::File(file.path),
        None if settings.keys_in_store => Place::Store(Arc::clone(&settings.opener)),
        None => Place::None,
    }
}

/// Says every day when the certificate expires, once that is soon.
async fn remind(tls: Arc<Tls>) {
    let mut days = tokio::time::interval(DAY);
    // The first one is at once, and the start has said it.
    days.tick().await;
    loop {
        days.tick().await;
        tls.remind();
    }
}

/// The threads that serve connections. An idle one is woken whenever another has work for it, so too many cost more than they gain,
/// and the store has a thread of its own. A node of a cluster has more: the more calls come together, the fewer writes they need.
fn face_threads(is_node: bool) -> anyhow::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(if is_node { cores } else { (cores / 2).max(1) })
        .thread_name("face")
        .enable_all()
        .build()
        .context("cannot start the threads that serve")
}

async fn bind(listen: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(listen).await.with_context(|| {
        format!("listen = \"{listen}\": must be an address of this host with a port that is free")
    })
}

fn run(
    mut reload: Reload,
    access: Access,
    local: Option<LocalKey>,
    trail: Trail,
    handed: Handed,
) -> anyhow::Result<()> {
    let Handed { notifier, watchdog, .. } = handed;
    let settings = &reload.settings;
    let Prepared { runtime_dir, state_dir, locks, .. } = prepare(Wanted {
        daemon: "gateway",
        runtime_dir: (&settings.runtime_dir, 0o700),
        state_dir: (&settings.state_dir, 0o700),
        is_default: false,
    })?;
    // Until the end: of a gateway that is no more it lets nobody in.
    let _left = local.map(|key| key.leave(&runtime_dir)).transpose()?;
    let (store, thread) = open_store(Arc::clone(&settings.opener), runtime_dir, state_dir)?;
    let info = StoreInfo::of(settings.stores.upstream());
    let metrics = Arc::clone(&reload.metrics);
    let (listen, deadline) = (settings.listen, settings.stop_deadline);
    let (limits, tls) = (settings.limits, reload.tls.clone());
    let hosts = settings.hosts.clone();
    let mode = settings.mode.to_string();
    let plane = Plane::new(settings.session_ttl);
    let (control, proxies) = (
        ControlPlane::new(settings.policies.clone(), gateway_run::read(&settings.state_dir)),
        settings.proxies.clone(),
    );
    let told = Told::read(&settings.state_dir);
    let (proxy_networks, cluster_listen) =
        (settings.proxy_networks.clone(), settings.cluster_listen());
    let runtime = face_threads(cluster_listen.is_some())?;
    let in_store = settings.keys_in_store && settings.file_of_keys().is_none();
    let opener = Arc::clone(&settings.opener);
    runtime.block_on(async {
        let keys = if in_store { Some(keys_of(&*opener)?) } else { None };
        let mut signals = Signals::listen().context("cannot listen to signals")?;
        let listener = bind(listen).await?;
        let address = listener.local_addr().context("cannot listen")?;
        let ready =
            format!("tenured-gateway: ready at {address} ({}: {})", info.kind, info.guarantee);
        if let Some(tls) = tls.clone() {
            tokio::spawn(remind(tls));
        }
        let hosts = Hosts::new(address.ip(), hosts, tls);
        let drain = CancellationToken::new();
        let (budgets, people) = (Budgets::new(&limits), People::new(mode));
        let networks = Networks::new(proxy_networks, address, cluster_listen);
        let numbers = metrics.routes.clone();
        let delivery = Delivery::new(store.clone(), &info.kind, numbers, told, networks);
        let face = Arc::new(Face {
            store: store.clone(),
            access,
            keys: keys.clone(),
            info,
            metrics,
            trail,
            drain: drain.clone(),
            budgets,
            people,
            plane,
            delivery,
            control,
        });
        face::observe(&face).await.context("the store ended while the gateway started")?;
        if let Some(keys) = &keys {
            let mut follow = Follow::new(keys.clone(), Arc::clone(&face));
            // With a store that does not answer the gateway starts all the same.
            follow.look().await;
            tokio::spawn(follow.run());
        }
        tokio::spawn(Arc::clone(&face).watch_ends());
        tokio::spawn(face::tell_proxies(Arc::clone(&face), proxies));
        let kind = face.info.kind.clone();
        let serving = tokio::spawn(face::serve(listener, Arc::clone(&face), hosts, limits));
        let reports = Reports { notifier: notifier.clone(), watchdog, kind, store: store.clone() };
        let reports = tokio::spawn(reports.run());
        reload.log.announce(&ready);
        reload_until_stopped(&mut reload, &mut signals, &face, &notifier).await;
        reports.abort();
        notifier.stopping();
        info!("stopping: what agents hold stays in the store");
        drain.cancel();
        if tokio::time::timeout(deadline, serving).await.is_err() {
            warn!(?deadline, "stopped before every request was answered");
        }
        store.stop().await;
        thread.ended().await;
        if tokio::time::timeout(deadline, face.trail.flush()).await.is_err() {
            warn!("stopped before the audit trail was written");
        }
        anyhow::Ok(())
    })?;
    notifier.finish();
    // Nothing that has not ended by now is waited for.
    runtime.shutdown_background();
    drop(locks);
    Ok(())
}

/// Opens the store, on its thread.
fn open_store(
    opener: Arc<dyn Opener>,
    runtime_dir: Directory,
    state_dir: Directory,
) -> anyhow::Result<(Store, Thread)> {
    let boot_id = machine::boot_id().context("the system does not say which boot this is")?;
    store::spawn(Arc::new(clock::now), move || -> anyhow::Result<_> {
        Ok(opener.open(tenure_stores::settings::Place {
            runtime_dir: Box::new(Files::of(runtime_dir)),
            state_dir: Box::new(Files::of(state_dir)),
            boot_id,
            now: clock::now(),
            wall_clock_us: clock::wall_us(),
            catch_up: &|_| {},
        })?)
    })
}

async fn reload_until_stopped(
    reload: &mut Reload,
    signals: &mut Signals,
    face: &Arc<Face>,
    notifier: &Notifier,
) {
    while reload.next_signal(signals, face).await == Signal::Reload {
        notifier.reloading();
        reload.reload(face);
        notifier.ready();
    }
}

fn unavailable(error: impl Into<Error>) -> (u8, Error) {
    (UNAVAILABLE, error.into())
}

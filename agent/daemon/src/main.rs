//! The `tenured` daemon: its whole life, from the command line to the exit code.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Error};
use tenure_host::peer::Identity;
use tenure_host::service_manager::{self, Handed, Notifier};
use tenure_host::signals::{Signal, Signals};
use tenure_host::socket::{self, Place};
use tenure_host::{machine, marks};
use tenure_service::command_line;
use tenured::api::{self, Listening};
use tenured::config::{self, Cli, Command, Config, Environment, Loaded, Quarantine};
use tenured::heart::{Control, Heart};
use tenured::lifecycle::{
    self, Assembled, Drained, Ending, Given, Means, Prepared, Ready, Reload, Reports, Vigil,
    Wanted, exit,
};
use tenured::policy::SharedPolicy;
use tenured::telemetry::{Metrics, log};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Threads of the API at most; on a small machine one, which leaves a core to the heart.
const API_THREADS_MAX: usize = 4;

fn main() -> ExitCode {
    #[expect(
        clippy::disallowed_methods,
        reason = "elapsed time for the log and the status, no deadline"
    )]
    let started = Instant::now();
    let cli: Cli = match command_line::parse("tenured") {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    if let Some(Command::Gateway { arguments }) = &cli.command {
        let error = Error::from(lifecycle::run_gateway(arguments));
        eprintln!("tenured: {error:#}");
        return ExitCode::from(exit::UNAVAILABLE);
    }
    // Before there is any secret.
    let private = machine::keep_memory_private();
    let outcome = match config::load(&cli.flags, &Environment::of_process()) {
        Err(error) => Err((exit::CONFIG, error.into())),
        Ok(loaded) => match cli.command.clone().unwrap_or(Command::Agent) {
            #[cfg(feature = "postgres")]
            Command::CheckConfig { sql: true } => print(&tenure_stores::postgres::sql()),
            Command::CheckConfig { .. } => check(&loaded),
            Command::Quarantine(Quarantine::End { yes }) => {
                let ended = lifecycle::end_quarantine(&loaded.config.socket, yes);
                ended.map(|done| println!("{done}")).map_err(unavailable)
            }
            // A gateway has taken this process' place.
            Command::Agent | Command::Gateway { .. } => {
                marks::around(|| serve(started, cli, loaded, private))
            }
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, error)) => {
            eprintln!("tenured: {error:#}");
            ExitCode::from(code)
        }
    }
}

/// The threads of the API.
fn api_threads() -> anyhow::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads((cores / 2).clamp(1, API_THREADS_MAX))
        .thread_name("api")
        .enable_all()
        .build()
        .context("cannot start the threads of the API")
}

/// Prints what is in effect.
fn check(loaded: &Loaded) -> Result<(), (u8, Error)> {
    for warning in &loaded.warnings {
        eprintln!("tenured: {warning}");
    }
    print(&loaded.effective())
}

fn print(text: &str) -> Result<(), (u8, Error)> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.context("cannot write").map_err(unavailable)
}

/// Binds, serves and drains.
fn serve(
    started: Instant,
    cli: Cli,
    loaded: Loaded,
    private: io::Result<()>,
) -> Result<(), (u8, Error)> {
    let named_by = loaded.origin("socket").variable().map(str::to_owned);
    let is_default = !loaded.is_set("runtime_dir");
    let Loaded { config, warnings, files, .. } = loaded;
    // Before any thread: it changes the environment.
    let handed = service_manager::take().map_err(unavailable)?;
    let Handed { listener, processes, notifier, watchdog, notices } = handed;
    let metrics = Arc::new(Metrics::new());
    let dropped = metrics.log_lines_dropped.clone();
    let log =
        log::start("tenured", &config.log, config.log_format, dropped).map_err(unavailable)?;
    warnings.iter().chain(&notices).for_each(|warning| warn!("{warning}"));
    if let Err(error) = private {
        warn!(%error, "passwords could get into core dumps: their limit cannot be lowered");
    }
    let scrapes = config.metrics_listen.map(api::bind_metrics).transpose().map_err(unavailable)?;
    let wanted = Wanted {
        daemon: "agent",
        runtime_dir: (&config.runtime_dir, 0o755),
        state_dir: (&config.state_dir, 0o700),
        is_default,
    };
    let Prepared { descriptors, runtime_dir, state_dir, mut locks } =
        lifecycle::prepare(wanted).map_err(unavailable)?;
    let means = Means { descriptors, memory: machine::memory_limit() };
    let (listener, mut place) = bind(listener, &config, named_by).map_err(unavailable)?;
    let policy = SharedPolicy::new(config.policy.clone());
    let filter = log.filter();
    let (own_state, own_runtime) = (state_dir.clone(), runtime_dir.clone());
    let given = Given {
        policy: &policy,
        metrics: &metrics,
        runtime_dir,
        state_dir,
        filter,
        notifier: notifier.clone(),
        processes,
    };
    let parts = lifecycle::assemble(&config, means, given).map_err(unavailable)?;
    let Assembled { mut heart, context, guarantee } = parts;

    let runtime = api_threads().map_err(unavailable)?;
    let (flags, environment) = (cli.flags, Environment::of_process());
    let mut reload = Reload { flags, environment, config, files, log, policy, metrics };

    let ending = runtime.block_on(async {
        let mut signals =
            Signals::listen().context("cannot listen to signals").map_err(unavailable)?;
        let listener =
            UnixListener::from_std(listener).context("cannot listen").map_err(unavailable)?;
        let drain = CancellationToken::new();
        let (probe, door) = api::self_probe();
        let upstream = reload.config.stores.upstream().kind().to_owned();
        let handle = context.heart.clone();
        let reports = Reports { notifier: notifier.clone(), watchdog, upstream, probe, handle };
        if let Some(listener) = scrapes {
            let hosts = reload.config.metrics_hosts.clone();
            let listener = api::MetricsListener::from_std(listener, hosts, context.clone());
            tokio::spawn(listener.map_err(unavailable)?.serve(drain.clone()));
        }
        let (renewed, to_renew) = mpsc::channel(1);
        // Before anybody is served: the vigil takes the files that are there now for the agent's own.
        let mut vigil = Vigil::new([&own_runtime, &own_state], &mut locks, &heart, renewed);
        let listening = Listening { now: listener, renewed: to_renew };
        let api = api::serve(listening, Identity::of, door, context, drain.clone());
        let api = tokio::spawn(api);
        let reports = tokio::spawn(reports.run());
        announce(started, &reload, &place, &guarantee);
        let ending = tokio::select! {
            ending = live(&mut signals, &mut reload, means, &heart, &notifier) => ending,
            never = lifecycle::give_memory_back() => match never {},
            never = vigil.keep(&mut place) => never,
        };

        reports.abort();
        vigil.end(ending == Ending::Restart);
        locks.leave();
        place.leave();
        notifier.stopping();
        drain.cancel();
        let deadline = reload.config.limits.stop_deadline;
        end(ending, deadline, &mut heart, api, &mut signals).await;
        Ok(ending)
    })?;
    if ending == Ending::Stop {
        place.remove();
        machine::forget_agent_id(&own_state);
    }
    notifier.finish();
    // Nothing that has not ended by now is waited for.
    runtime.shutdown_background();
    drop(locks);
    Ok(())
}

/// Takes the socket that a service manager handed over, or binds one. `named_by` is the variable that named the socket.
fn bind(
    handed: Option<OwnedFd>,
    config: &Config,
    named_by: Option<String>,
) -> Result<(std::os::unix::net::UnixListener, Place), Error> {
    let bound = match handed {
        Some(handed) => socket::adopt(handed, &config.socket),
        None => socket::bind(&config.socket, config.audience),
    };
    bound.map_err(|error| match (named_by, Error::from(error)) {
        (Some(variable), error) => {
            error.context(format!("the socket is the one that the variable {variable} names"))
        }
        (None, error) => error,
    })
}

/// Has the heart and the API do what is left to do.
async fn end(
    ending: Ending,
    deadline: Duration,
    heart: &mut Heart,
    api: impl Future,
    signals: &mut Signals,
) {
    heart.control(ending.control()).await;
    let work = async {
        heart.ended().await;
        // The API's own error is a panic of its task; there is nothing left of it to wait for.
        if tokio::time::timeout(ending.patience(), api).await.is_err() {
            info!("connections that hold up the restart are cut");
        }
    };
    match lifecycle::drain(work, deadline, signals).await {
        Drained::Done => info!("stopped"),
        Drained::DeadlinePassed => warn!(?deadline, "stopped before everything was done"),
        Drained::Interrupted => warn!("second signal: stopped before everything was done"),
    }
}

/// Serves until a signal ends it.
async fn live(
    signals: &mut Signals,
    reload: &mut Reload,
    means: Means,
    heart: &Heart,
    notifier: &Notifier,
) -> Ending {
    loop {
        match signals.next().await {
            Signal::Stop => {
                info!("stopping: every hold is released");
                return Ending::Stop;
            }
            Signal::Restart => {
                info!("restarting: every hold is kept for the next agent");
                return Ending::Restart;
            }
            Signal::Reload => {
                notifier.reloading();
                reload.reload();
                let fitted = means.fit(&reload.config.limits, &reload.config.settings);
                heart.control(Control::Reload(Box::new(fitted.settings))).await;
                notifier.ready();
            }
        }
    }
}

fn announce(started: Instant, reload: &Reload, place: &Place, guarantee: &str) {
    let upstream = reload.config.stores.upstream().kind();
    let (took, socket) = (started.elapsed(), place.path());
    let ready = Ready { took, socket, upstream, guarantee };
    reload.log.announce(&ready);
}

fn unavailable(error: impl Into<Error>) -> (u8, Error) {
    (exit::UNAVAILABLE, error.into())
}

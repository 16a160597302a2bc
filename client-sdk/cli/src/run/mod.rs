//! `tenure run`: a command that does not outlive its hold.

mod acquire;
mod alarm;
mod child;
mod deadlock;
mod decide;
mod family;
mod kept;
pub(crate) mod kernel;
mod nesting;
mod not_started;
mod one_host;
mod request;
mod service;
mod signals;
mod terminal;
mod tether;
mod validity;
mod waiting;
mod watch;

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use tenure::client::{CallError, Client};
use tenure::page::{boottime_ns, check_clock};
use tenure::wire::{
    Acquire, Acquired, Code, DEFAULT_PROJECT, Kind, Leftovers, LimitChanged, Register, Registered,
    Release,
};
use tokio::time::timeout;
use uuid::Uuid;

use self::acquire::{Campaign, Granted};
use self::child::{Environment, Guarded, Recipe};
use self::decide::Reaction;
pub(crate) use self::kept::{acquire as acquire_and_keep, release};
use self::nesting::{held_around, holds_within, refuse_to_wait_for_itself};
use self::request::{acquire, register};
use self::service::Service;
use self::signals::{Arrival, Sender, Signals, ends_wait};
use self::terminal::Terminal;
use self::validity::{Reading, Validity};
use self::waiting::{Place, Waiting};
use self::watch::{Ending, Orders, Watch};
use crate::args::{OnLost, RunArgs, Tether, WishArgs};
use crate::exit::{self, End};
use crate::failure::{Failure, Who};
use crate::output::say;
use crate::show::leftovers::named;

/// How long giving back may take. The end of this process gives back as well, so that an agent that
/// does not answer costs no more than this.
const RELEASE_MAX: Duration = Duration::from_secs(1);

/// Runs the command under its hold; returns how it ended.
///
/// # Errors
///
/// Why the command did not run, or was stopped.
pub(crate) async fn run(args: &RunArgs, client: Client) -> Result<End, Failure> {
    let (kind, name) = args.wish.resource.resource();
    let what = resource_name(&args.wish, kind, name.as_deref());
    let system = |error: io::Error| Failure::new(exit::REFUSED, format!("{what}: {error}"));

    check_max_hold(args)?;
    let mask = set_signal_mask().map_err(system)?;
    kernel::adopt_orphans().map_err(system)?;
    let mut signals = Signals::install().map_err(system)?;
    let asked = acquire(args, kind, name.clone());
    let mut service = Service::find();
    let acquisition = Acquisition {
        wish: &args.wish,
        what: &what,
        progress: args.progress,
        service: Some(&service),
    };
    let granted = acquisition.acquire(&client, register(args), asked, &mut signals).await;
    let (campaign, granted) = match granted {
        Ok(granted) => granted,
        Err(end) => return end,
    };
    let Granted { tether, acquired, asked_at } = granted;

    let handed = service.hand_over(&what);
    let validity = match validity_at_start(&client, &tether.registered, &acquired, asked_at) {
        Ok(validity) => validity,
        Err((status, why)) => {
            campaign.abandon(None).await;
            return Err(Failure::new(status, format!("{what}: {why}")));
        }
    };
    say_limit_changed(&what, acquired.limit_changed);
    if !args.wish.quiet {
        one_host::say_once(&what, client.path(), &tether.registered);
    }
    if let Some(progress) = args.progress {
        // The command has all of its time from its start on.
        let _answer = timeout(progress, client.beat(tether.registered.session)).await;
    }
    let around = held_around(&client).await;
    let environment = environment(&client, &tether.registered, &acquired, &around);
    let terminal = Terminal::find();
    let spawned = Guarded::spawn(Recipe {
        command: &args.command,
        environment: environment.clone(),
        tether: (args.tether == Tether::Tree).then(|| std::os::fd::AsFd::as_fd(&tether.stream)),
        in_own_group: terminal.is_none(),
        mask,
        service: handed,
    });
    let guarded = match spawned {
        Ok(guarded) => guarded,
        Err(error) => {
            campaign.abandon(None).await;
            return Err(not_started::not_started(&args.command, &error));
        }
    };
    let session = tether.registered.session;
    let start_program =
        |reason: &str, pid: u32| on_lost_program(args, &environment, reason, pid, mask);
    let orders = Orders {
        what: &what,
        reaction: reaction(&args.on_lost),
        kill_after: args.kill_after,
        max_hold: args.max_hold,
        progress: args.progress,
        start_program: &start_program,
    };
    let mut watch =
        Watch::new(orders, guarded, terminal, client.clone(), tether, &acquired, validity);
    // The command was not there, and heard none of them.
    while let Some(arrival) = signals.waiting().await {
        watch.take_signal(Arrival { sender: Sender::Unknown, ..arrival });
    }
    let ending = watch.run(&mut signals).await.map_err(system)?;
    let interrupted = interrupt_after_the_end(&mut signals).await;
    if !args.wish.quiet {
        say_what_is_left(&what, args.tether, &ending);
    }
    give_back(&client, session, args.tether, &ending).await;
    service.end();
    // Not before: a stream that closes says that the command has ended, too.
    drop(ending.stream);
    Ok(match ending.status {
        Some(status) if !ending.stopped => interrupted.unwrap_or(child::end(status)),
        _ => End::Exit(exit::LOST),
    })
}

/// The validity of a hold that its command can be started under, or the exit status and why it cannot.
fn validity_at_start(
    client: &Client,
    registered: &Registered,
    acquired: &Acquired,
    asked_at: u64,
) -> Result<Validity, (u8, String)> {
    check_clock(asked_at, acquired.valid_ms, acquired.valid_until_boottime_ns)
        .map_err(|differ| (exit::UNAVAILABLE, differ.to_string()))?;
    let validity = Validity::new(client, registered, acquired);
    // Time may have passed since the grant: Ctrl-Z, a busy machine.
    match validity.read() {
        Reading::Until(instant) if boottime_ns() < instant => Ok(validity),
        _ => {
            let lost = "the hold was lost before the command started; try again";
            Err((exit::LOST, lost.to_owned()))
        }
    }
}

/// What the command is told of its hold.
fn environment(
    client: &Client,
    registered: &Registered,
    acquired: &Acquired,
    around: &[Uuid],
) -> Environment {
    // The command may change its directory.
    let socket = std::path::absolute(client.path()).unwrap_or_else(|_| client.path().to_owned());
    [
        ("TENURE_HOLD", acquired.hold.to_string().into()),
        ("TENURE_HOLDS", holds_within(around, acquired.hold).into()),
        ("TENURE_TOKEN", acquired.token.to_string().into()),
        ("TENURE_SESSION", registered.session.to_string().into()),
        ("TENURE_PAGE", registered.page.clone().into()),
        ("TENURE_SLOT", acquired.slot.to_string().into()),
        ("TENURE_SOCKET", socket.into()),
    ]
}

/// A hold that somebody waits for.
struct Acquisition<'a> {
    wish: &'a WishArgs,
    /// `leader/cleanup`, for messages.
    what: &'a str,
    /// The session's promise of progress.
    progress: Option<Duration>,
    /// Tells a service manager that this process waits, and does not hang.
    service: Option<&'a Service>,
}

impl Acquisition<'_> {
    /// Acquires it; else returns how this command ends.
    async fn acquire(
        &self,
        client: &Client,
        register: Register,
        asked: Acquire,
        signals: &mut Signals,
    ) -> Result<(Campaign, Granted), Result<End, Failure>> {
        // The campaign has a patience of its own.
        let hasty = client.with_patience(Duration::ZERO);
        let hasty = hasty.map_err(|error| Err(Failure::of_call("--socket", &error)))?;
        let (kind, name) = (asked.kind, asked.name.clone());
        let mut campaign = Campaign::new(hasty, register, asked, self.wish.store_wait);
        refuse_to_wait_for_itself(self.wish, kind, name.as_deref(), self.what, client)
            .await
            .map_err(Err)?;
        let place = campaign.place();
        let outcome = tokio::select! {
            biased;
            signal = wait_ending_signal(signals) => Err(signal),
            granted = campaign.run() => Ok(granted),
            never = self.wait_aloud(client, &place) => match never {},
        };
        match outcome {
            Ok(Ok(granted)) => Ok((campaign, granted)),
            Ok(Err(error)) => {
                if let CallError::Refused(problem) = &error {
                    say_limit_changed(self.what, problem.limit_changed);
                }
                campaign.abandon(Some(&error)).await;
                Err(Err(self.not_acquired(&error)))
            }
            Err(signal) => {
                campaign.abandon(None).await;
                Err(Ok(End::Signal(signal as i32)))
            }
        }
    }

    /// While the campaign waits: tells what for, unless nobody wants to know, and keeps a promise of progress.
    async fn wait_aloud(&self, client: &Client, place: &Place) -> Infallible {
        let Acquisition { wish, what, progress, service } = self;
        let (kind, name) = wish.resource.resource();
        let name = name.as_deref().or(wish.project.as_deref()).unwrap_or(DEFAULT_PROJECT);
        let tenant = wish.tenant.as_deref();
        let waiting = Waiting { client, what, kind, name, tenant, place };
        let speak = async {
            if !wish.quiet && !wish.no_wait {
                waiting.speak().await;
            }
        };
        let beat = async {
            if let Some(progress) = *progress {
                waiting.beat(progress).await;
            }
        };
        let tell = async {
            if let Some(service) = service {
                match service.wait(what).await {}
            }
        };
        tokio::join!(speak, beat, tell);
        std::future::pending().await
    }

    /// The failure to acquire, as the user wants to hear of it.
    fn not_acquired(&self, error: &CallError) -> Failure {
        let Acquisition { wish, what, .. } = self;
        let failure = Failure::of_call(what, error);
        if failure.code != exit::NOT_ACQUIRED {
            return failure;
        }
        let line = match (error.problem(), wish.wait) {
            _ if wish.quiet => String::new(),
            (Some(problem), Some(wait)) if problem.code == Code::WaitTimeout => {
                let wait = humantime::format_duration(wait);
                let holder = problem.holder.as_ref();
                let by = holder.map(|holder| format!(": held by {}", Who(holder)));
                format!("{what}: not free within --wait {wait}{}", by.unwrap_or_default())
            }
            _ => failure.line.clone(),
        };
        failure.worded(wish.conflict_exit_code, line)
    }
}

/// Everybody who names a limit decides for all, also one who is refused.
fn say_limit_changed(what: &str, changed: Option<LimitChanged>) {
    if let Some(LimitChanged { from, to }) = changed {
        say(&format!("{what}: limit changed from {from} to {to} for everybody"));
    }
}

/// A command that is to be stopped at the end of --max-hold must have time between the two signals.
fn check_max_hold(args: &RunArgs) -> Result<(), Failure> {
    let asks_first = matches!(args.on_lost, OnLost::Term | OnLost::Command(_));
    if args.max_hold.is_some() && asks_first && args.kill_after.is_zero() {
        let line = "--max-hold with --kill-after 0s leaves no time between SIGTERM and SIGKILL; \
                    give --kill-after a duration, or write --on-lost kill";
        return Err(Failure::new(exit::USAGE, line));
    }
    Ok(())
}

/// A command that has ended and still has its lock is a riddle to all who wait for it.
fn say_what_is_left(what: &str, tether: Tether, ending: &Ending) {
    if tether == Tether::Child || ending.stopped || ending.left_nothing {
        return;
    }
    say(&format!(
        "{what}: the command has ended, but what it left behind keeps the hold{}; end it, or use --tether child",
        named(&ending.named_leftovers(), ending.more_leftovers())
    ));
}

/// Ends the session, unless what the command left behind is to keep its hold: the agent tells others of that.
async fn give_back(client: &Client, session: Uuid, tether: Tether, ending: &Ending) {
    let exit_status = ending.status.map(|status| match child::end(status) {
        End::Exit(status) => i32::from(status),
        End::Signal(signal) => i32::from(exit::by_signal(signal)),
    });
    if ending.agent_stops {
        // The end of this process gives back. A call would wait for its time-out where systemd keeps the socket.
        return;
    }
    if tether == Tether::Child || ending.left_nothing {
        // A refusal means that there is nothing left to give back.
        let release = Release { session, hold: None, exit_status, stopped: ending.why };
        let _answer = timeout(RELEASE_MAX, async {
            // An agent of an earlier version refuses what it does not know.
            match client.give_back(&release).await {
                Err(_) => client.release(session, None).await,
                released => released,
            }
        })
        .await;
    } else if !ending.stopped {
        let (processes, more) = (ending.named_leftovers(), ending.more_leftovers());
        let leftovers = Leftovers { session, exit_status, processes, more };
        // An agent of an earlier version does not know of them.
        let _answer = timeout(RELEASE_MAX, client.leftovers(&leftovers)).await;
    }
}

/// A terminal stops a whole job when a part of it reads or writes from the background: this process stops when the
/// command has. The end of a command is heard by SIGCHLD, which may be blocked by the program that started this one.
/// Returns the mask to start programs with.
fn set_signal_mask() -> io::Result<SigSet> {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTIN);
    blocked.add(Signal::SIGTTOU);
    let inherited = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let mut heard = SigSet::empty();
    heard.add(Signal::SIGCHLD);
    heard.thread_unblock()?;
    Ok(inherited)
}

/// The command has ended: from now on a signal ends this process. Returns one that came just before, which is meant for
/// the loop around this command.
async fn interrupt_after_the_end(signals: &mut Signals) -> Option<End> {
    kernel::default_again(&[Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP]);
    while let Some(arrival) = signals.waiting().await {
        if matches!(arrival.signal, Signal::SIGINT | Signal::SIGQUIT) {
            return Some(End::Signal(arrival.signal as i32));
        }
    }
    None
}

async fn wait_ending_signal(signals: &mut Signals) -> Signal {
    loop {
        match signals.next().await.signal {
            signal if ends_wait(signal) => return signal,
            Signal::SIGTSTP => kernel::stop_by(Signal::SIGTSTP, || true),
            _ => {}
        }
    }
}

fn resource_name(args: &WishArgs, kind: Kind, name: Option<&str>) -> String {
    let project = args.project.as_deref().unwrap_or("default");
    format!("{kind}/{}", name.unwrap_or(project))
}

fn reaction(on_lost: &OnLost) -> Reaction {
    match on_lost {
        OnLost::Term => Reaction::Term,
        OnLost::Kill => Reaction::Kill,
        OnLost::Ignore => Reaction::Ignore,
        OnLost::Command(_) => Reaction::Program,
    }
}

fn on_lost_program(
    args: &RunArgs,
    environment: &[(&'static str, OsString)],
    reason: &str,
    pid: u32,
    mask: SigSet,
) -> io::Result<Child> {
    let OnLost::Command(words) = &args.on_lost else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .env("TENURE_LOST_REASON", reason)
        .env("TENURE_PID", pid.to_string());
    let start =
        kernel::Start { inherited: Vec::new(), in_own_group: true, dies_with_parent: false, mask };
    kernel::prepare(&mut command, &start);
    command.spawn()
}

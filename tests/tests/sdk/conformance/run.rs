//! One scenario with one twin of the SDK.

mod apart;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tenure::wire::{Attributes, Kind, Standing};
use tenure::{Lost, ReleaseError, Resource, SessionBuilder};
use tenure_tests::harness::{
    Agent, DEADLINE, PageFile, RedisServer, boottime_ns, eventually, until,
};

use crate::conformance::script::{Action, Options, Scenario, Step, Want};
use crate::conformance::twins::{Begun, Denied, Guarded, SESSION_GONE, Twin};

/// The events of a session, and how many of them the steps have been through.
#[derive(Default)]
struct Events {
    heard: Arc<Mutex<Vec<Value>>>,
    seen: usize,
}

struct Program<T: Twin> {
    session: T::Session,
    options: Options,
    events: Events,
}

pub(crate) struct Run<T: Twin> {
    // The programs end before what they talk to.
    sessions: HashMap<String, Program<T>>,
    holds: HashMap<String, Arc<T::Hold>>,
    tokens: HashMap<String, u64>,
    begun: HashMap<String, Begun<T::Hold>>,
    guarded: HashMap<String, Guarded>,
    twin: T,
    agent: Agent,
    redis: Option<RedisServer>,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl<T: Twin> Run<T> {
    /// Runs a scenario, unless this twin lacks an ability that it needs.
    pub(crate) fn scenario(scenario: &Scenario) {
        let missing: Vec<_> =
            scenario.needs.iter().filter(|it| !T::ABILITIES.contains(&it.as_str())).collect();
        if !missing.is_empty() {
            return eprintln!("{}: skipped, for want of {missing:?}", scenario.name);
        }
        let redis = scenario.redis.then(RedisServer::start);
        let setup = Agent::setup().config(&configuration(&scenario.agent));
        let agent = match &redis {
            Some(redis) => setup.upstream(&redis.url()).start(),
            None => setup.start(),
        };
        let mut run: Run<T> = Run {
            sessions: HashMap::new(),
            holds: HashMap::new(),
            tokens: HashMap::new(),
            begun: HashMap::new(),
            guarded: HashMap::new(),
            twin: T::start(),
            agent,
            redis,
        };
        for (at, step) in scenario.steps.iter().enumerate() {
            eprintln!("{}: step {}: {step:?}", scenario.name, at + 1);
            run.step(step);
        }
        for (_, program) in run.sessions.drain() {
            // The agent may be gone.
            let _ = run.twin.close(program.session);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Session { r#as, options } => self.open(r#as, options.clone()),
            Step::Acquire(want) => self.acquire(want),
            Step::Begin(want) => {
                let begun = self.begin(want);
                self.begun.insert(want.r#as.clone(), begun);
            }
            Step::End { of, expect, code, holder } => {
                let begun = self.begun.remove(of).expect("it was begun");
                self.judge(of, outcome(&begun), expect, [code.as_deref(), holder.as_deref()]);
            }
            Step::Cancel { of } => {
                let begun = self.begun.remove(of).expect("it was begun");
                begun.cancel.expect("it can be cancelled")();
                let end = begun.outcome.recv_timeout(DEADLINE);
                assert!(matches!(end, Err(RecvTimeoutError::Disconnected)), "not cancelled");
            }
            Step::Waiting { session, kind, name, count } => {
                let waiting = || self.standing(session, *kind, name).waiting == *count;
                until(&format!("{count} to wait"), waiting);
            }
            Step::Holding { session, kind, name, count } => {
                let holding = || self.standing(session, *kind, name).holding == *count;
                until(&format!("{count} to hold"), holding);
            }
            Step::Release { hold, expect, reason } => {
                self.release(hold, expect, reason.as_deref());
            }
            Step::Held { hold, is } => {
                until(&format!("held to be {is}"), || self.is_held(hold) == *is);
            }
            Step::Steadily { hold, ms: time } => {
                let end = boottime_ns() + time * 1_000_000;
                while boottime_ns() < end {
                    assert!(self.is_held(hold), "{:?}", self.holds[hold].check());
                    sleep(ms(2));
                }
            }
            Step::Guard { hold, r#as } => {
                let guarded = self.twin.guard(hold, Arc::clone(&self.holds[hold]));
                self.guarded.insert(r#as.clone(), guarded);
            }
            Step::Ended { of, reason } => {
                let guarded = self.guarded.remove(of).expect("it is guarded");
                let lost: Lost = guarded.ended.recv_timeout(DEADLINE).expect("a loss");
                assert_eq!(lost.reason.as_str(), reason);
            }
            Step::Token { hold, above } => {
                assert!(self.tokens[hold] > self.tokens[above], "{:?}", self.tokens);
            }
            _ => self.other_step(step),
        }
    }

    fn other_step(&mut self, step: &Step) {
        match step {
            Step::Slots { session, count } => {
                let registered = self.sessions[session].session.registered();
                let page = PageFile::open(Path::new(&registered.page));
                let held = |slot: &u32| page.slot(*slot).valid_until_ns > boottime_ns();
                assert_eq!((0..page.slots()).filter(held).count(), *count);
            }
            Step::Event { session, event, hold, reason, cause } => {
                let hold = hold.as_ref().map(|hold| self.holds[hold].id().to_string());
                let fields = [("hold", &hold), ("reason", reason), ("cause", cause)];
                self.event(session, event, fields);
            }
            Step::None { session, event } => {
                let events = &self.sessions[session].events;
                let heard = events.heard.lock().expect("no panic");
                let mut since = heard[events.seen..].iter();
                assert!(since.all(|one| one["event"] != event.as_str()), "{heard:?}");
            }
            Step::Revoke { kind, name } => {
                assert!(self.revoking(*kind, name).status().expect("it starts").success());
            }
            Step::Agent { action } => self.agent(*action),
            Step::Redis { action } => {
                let redis = self.redis.as_mut().expect("the scenario has a Redis");
                match action {
                    Action::Freeze => redis.pause(),
                    Action::Thaw => redis.resume(),
                    Action::Kill => redis.kill(),
                    Action::Start => redis.start_again(),
                    _ => panic!("no action for a Redis: {action:?}"),
                }
            }
            Step::Block(block) => self.block(block),
            Step::Beat { session } => {
                let session = &self.sessions[session].session;
                let beating = tenure::Session::clone(session);
                let beaten = self.twin.wait_for(session, async move { beating.beat().await });
                beaten.expect("the session lives");
            }
            Step::Close { session } => {
                let program = self.sessions.remove(session).expect("it is open");
                self.twin.close(program.session).expect("the agent answers");
            }
            Step::Sessions { count, kind, name, limit } => {
                self.many_sessions(*count, *kind, name, *limit);
            }
            Step::Fork { steps } => self.fork(steps),
            Step::Pause { ms: time } => sleep(ms(*time)),
            _ => unreachable!("`step` does it: {step:?}"),
        }
    }

    fn open(&mut self, label: &str, options: Options) {
        let session = self.open_session(options.clone());
        // A program that opens another one goes on with what it has heard.
        let events = self.sessions.remove(label).map(|earlier| earlier.events);
        let events = events.unwrap_or_default();
        let heard = Arc::clone(&events.heard);
        let push = move |event| heard.lock().expect("no panic").push(event);
        self.twin.record(&session, push);
        self.sessions.insert(label.to_owned(), Program { session, options, events });
    }

    fn open_session(&self, options: Options) -> T::Session {
        let describe = move |mut builder: SessionBuilder| {
            if let Some(name) = options.name {
                builder = builder.name(name);
            }
            if let Some(project) = options.project {
                builder = builder.project(project);
            }
            if let Some(progress) = options.progress_ms {
                builder = builder.progress(ms(progress));
            }
            if let Some(linger) = options.linger_ms {
                builder = builder.linger(ms(linger));
            }
            if let Some(holds) = options.holds {
                builder = builder.holds(holds);
            }
            builder
        };
        self.twin.open(&self.agent.socket(), describe)
    }

    fn resource(&self, want: &Want) -> Resource {
        let session = &self.sessions[&want.session].session;
        let terms = &want.terms;
        assert!(terms.unknown.is_empty(), "unknown fields: {:?}", terms.unknown);
        let mut resource = match (want.kind, terms.limit) {
            (Kind::Leader, _) => session.leader(&want.name),
            (Kind::Master, _) => session.master(),
            (Kind::Lease, _) => session.lease(&want.name),
            (Kind::Semaphore, Some(limit)) => session.semaphore(&want.name, limit),
            (Kind::Semaphore, None) => session.semaphore_in_force(&want.name),
        };
        if let Some(ttl) = terms.ttl_ms {
            resource = resource.ttl(ms(ttl));
        }
        if let Some(max_hold) = terms.max_hold_ms {
            resource = resource.max_hold(ms(max_hold));
        }
        if terms.fleet {
            resource = resource.fleet();
        }
        if let Some(priority) = terms.priority {
            resource = resource.priority(priority);
        }
        if let Some(grace) = terms.grace_ms {
            resource = resource.grace(ms(grace));
        }
        if let Some(address) = terms.address.clone() {
            let address = Some(address);
            resource = resource.attributes(Attributes { address, ..Attributes::default() });
        }
        resource
    }

    fn begin(&self, want: &Want) -> Begun<T::Hold> {
        let session = &self.sessions[&want.session].session;
        self.twin.begin(session, self.resource(want), want.terms.wait_ms.map(ms))
    }

    fn acquire(&mut self, want: &Want) {
        let mut found = outcome(&self.begin(want));
        if found.as_ref().is_err_and(|denied| denied.how == SESSION_GONE) {
            let options = self.sessions[&want.session].options.clone();
            self.open(&want.session, options);
            found = outcome(&self.begin(want));
        }
        let words = [want.code.as_deref(), want.holder.as_deref()];
        self.judge(&want.r#as, found, &want.expect, words);
    }

    fn judge(
        &mut self,
        label: &str,
        found: Result<T::Hold, Denied>,
        expected: &str,
        words: [Option<&str>; 2],
    ) {
        match found {
            Ok(hold) => {
                assert_eq!(expected, "held");
                self.tokens.insert(label.to_owned(), hold.token());
                self.holds.insert(label.to_owned(), Arc::new(hold));
            }
            Err(denied) => {
                assert_eq!(denied.how, expected, "{denied:?}");
                for word in words.into_iter().flatten() {
                    assert_eq!(denied.detail, word);
                }
            }
        }
    }

    fn standing(&self, session: &str, kind: Kind, name: &str) -> Standing {
        let session = &self.sessions[session].session;
        let (asking, name) = (tenure::Session::clone(session), name.to_owned());
        let standing = self.twin.wait_for(session, async move {
            // Whether the question names a limit makes no difference.
            match kind {
                Kind::Leader => asking.leader(name).standing().await,
                Kind::Master => asking.master().standing().await,
                Kind::Lease => asking.lease(name).standing().await,
                Kind::Semaphore => asking.semaphore_in_force(name).standing().await,
            }
        });
        standing.expect("the agent answers")
    }

    /// Guarded work has to end before its hold can be given back: the compiler sees to that.
    fn release(&mut self, label: &str, expected: &str, reason: Option<&str>) {
        for (_, guarded) in self.guarded.extract_if(|_, guarded| guarded.hold == label) {
            (guarded.stop)();
        }
        let hold = self.holds.remove(label).expect("it was acquired");
        until("the guarded work to end", || Arc::strong_count(&hold) == 1);
        let hold = Arc::into_inner(hold).expect("nobody else has it");
        match self.twin.release(hold) {
            Ok(()) => assert_eq!(expected, "released"),
            Err(ReleaseError::Lost(lost)) => {
                assert_eq!((expected, reason), ("lost", Some(lost.reason.as_str())));
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn is_held(&self, label: &str) -> bool {
        // One that was given back is no value any more.
        let Some(hold) = self.holds.get(label) else { return false };
        let is_held = hold.is_held();
        match hold.check() {
            Ok(()) => assert!(is_held, "not held, and held again"),
            Err(_) => assert!(!is_held || !hold.is_held(), "check() does not agree"),
        }
        is_held
    }

    fn event(&mut self, session: &str, event: &str, fields: [(&str, &Option<String>); 3]) {
        let events = &mut self.sessions.get_mut(session).expect("it is open").events;
        let matches = |one: &Value| {
            let is = |(key, value): &(&str, &Option<String>)| {
                value.as_ref().is_none_or(|value| one["data"][*key] == value.as_str())
            };
            one["event"] == event && fields.iter().all(is)
        };
        events.seen = eventually(&format!("{event} with {fields:?}"), || {
            let heard = events.heard.lock().expect("no panic");
            let at = heard[events.seen..].iter().position(matches)?;
            Some(events.seen + at + 1)
        });
    }

    fn agent(&mut self, action: Action) {
        match action {
            Action::Restart => {
                self.agent.signal(Signal::SIGUSR2);
                self.agent.wait_exit();
                self.agent.start_again();
            }
            Action::Crash => {
                self.agent.kill();
                self.agent.start_again();
            }
            Action::Kill => self.agent.kill(),
            Action::Stop => {
                self.agent.stop();
            }
            Action::Start => self.agent.start_again(),
            Action::Freeze => self.agent.pause(),
            Action::Thaw => self.agent.resume(),
        }
    }

    fn many_sessions(&self, count: usize, kind: Kind, name: &str, limit: u32) {
        assert_eq!(kind, Kind::Semaphore);
        let open = |_| self.open_session(Options::default());
        let sessions: Vec<_> = (0..count).map(open).collect();
        let begin =
            |session: &T::Session| self.twin.begin(session, session.semaphore(name, limit), None);
        let begun: Vec<_> = sessions.iter().map(begin).collect();
        let holds: Vec<_> =
            begun.iter().map(|one| outcome(one).expect("there are enough")).collect();
        assert!(holds.iter().all(|hold| hold.is_held()));
        let tokens: std::collections::HashSet<_> = holds.iter().map(|hold| hold.token()).collect();
        assert_eq!(tokens.len(), count);
        for session in sessions {
            self.twin.close(session).expect("the agent answers");
        }
        assert!(!holds.iter().any(|hold| hold.is_held()));
    }
}

/// The agent's configuration file: `leader.ttl` is a key of TOML as it is.
fn configuration(settings: &BTreeMap<String, String>) -> String {
    settings.iter().fold(String::new(), |mut file, (key, value)| {
        writeln!(file, "{key} = {value:?}").expect("a string takes everything");
        file
    })
}

fn outcome<H>(begun: &Begun<H>) -> Result<H, Denied> {
    begun.outcome.recv_timeout(DEADLINE).expect("an outcome")
}

//! Many agents in one process, behind a gateway: the keeper, the turn and the client of a gateway that ship. What a
//! host has beside them is left out: socket, journal and pages.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tenure::wire::LostReason;
use tenure_core::keeper::journal::Entry;
use tenure_core::keeper::{
    Command, Keeper, Note, Peer, Quota, Refusal, Reply, Request, Rhythm, Settings, Ticket,
};
use tenure_core::model::{self, Answer, BeatAnswer, CallId};
use tenure_core::time::Boottime;
use tenure_core::turn::{Ending, Shell, Turn};
use tenure_host::clock;
use tenure_host::timer::Timer;
use tenure_stores::gateway::{Gateway, GatewayAccess};
use tenure_stores::remote::{Driver, Endpoint};
use tenure_stores::settings::secret::Secret;
use tenure_stores::{Report, Upstream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use uuid::Uuid;

use crate::harness::{Gateway as Process, Key};

/// Questions that wait for an agent.
const QUESTIONS_MAX: usize = 64;
/// A call's time, as in the settings of a gateway.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Most samples of a kind that are kept.
const SAMPLES_MAX: usize = 1 << 20;

/// What has come to agents so far.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Holds that were taken.
    pub taken: u64,
    /// Beats of holds that were answered: it is held.
    pub beats: u64,
    /// Calls with beats that were answered …
    pub beat_calls: u64,
    /// … and how long each took from the instant at which it was due, ms.
    pub beat_ms: Vec<f64>,
    /// Calls that failed, beats included.
    pub failures: u64,
    /// Holds that are in jeopardy, or have been.
    pub jeopardy: u64,
    /// Holds that were lost.
    pub lost: u64,
}

/// Running agents. Dropping them ends them as a kill would.
pub struct LightAgents {
    agents: Vec<mpsc::Sender<Question>>,
    tally: Arc<Mutex<Tally>>,
    thread: Option<JoinHandle<()>>,
}

struct Question {
    request: Request,
    reply: oneshot::Sender<Result<Reply, Refusal>>,
}

struct Agent {
    keeper: Keeper,
    turn: Turn,
    around: Around,
    timer: Timer,
    questions: mpsc::Receiver<Question>,
}

/// The surroundings of a keeper.
struct Around {
    driver: Driver<Gateway>,
    /// A report that came up after a turn, for the next one.
    report: Option<Report>,
    messages: VecDeque<Question>,
    asked: VecDeque<(Ticket, oneshot::Sender<Result<Reply, Refusal>>)>,
    next: u64,
    /// Calls with beats, and when they were due.
    beats: Vec<(CallId, Boottime)>,
    tally: Arc<Mutex<Tally>>,
}

impl LightAgents {
    /// Starts an agent for each of the keys, of principals that differ.
    pub fn start(gateway: &Process, keys: &[Key], rhythm: Rhythm) -> LightAgents {
        let accesses: Vec<_> = keys.iter().map(|key| access(gateway, key)).collect();
        let (agents, questions): (Vec<_>, Vec<_>) =
            keys.iter().map(|_| mpsc::channel(QUESTIONS_MAX)).unzip();
        let tally = Arc::<Mutex<Tally>>::default();
        let shared = Arc::clone(&tally);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let all = LocalSet::new();
            for (number, (access, questions)) in accesses.into_iter().zip(questions).enumerate() {
                let tally = Arc::clone(&shared);
                all.spawn_local(async move {
                    Agent::new(number, access, rhythm, questions, tally).run().await;
                });
            }
            runtime.expect("a runtime").block_on(all);
        });
        LightAgents { agents, tally, thread: Some(thread) }
    }

    /// How many agents there are.
    pub fn count(&self) -> usize {
        self.agents.len()
    }

    /// What has come to them so far.
    pub fn tally(&self) -> Tally {
        lock(&self.tally).clone()
    }

    /// Beats of holds that were answered so far.
    pub fn beats(&self) -> u64 {
        lock(&self.tally).beats
    }

    /// Holds that were taken.
    pub fn held(&self) -> u64 {
        lock(&self.tally).taken
    }

    /// A session of a program on that agent; `more` adds to the fields.
    pub fn register(&self, agent: usize, more: &Value) -> Uuid {
        let mut with = json!({"tether": "process", "holds": 4095});
        let fields = with.as_object_mut().expect("it is one");
        fields.extend(more.as_object().cloned().unwrap_or_default());
        match self.ask(
            agent,
            Request::Register(serde_json::from_value(with).expect("fields"), Default::default()),
        ) {
            Ok(Reply::Registered { session, .. }) => session.0,
            other => panic!("not registered: {other:?}"),
        }
    }

    /// Ends a session, and releases what it has.
    pub fn end(&self, agent: usize, session: Uuid) {
        let end = serde_json::from_value(json!({"session": session})).expect("fields");
        self.ask(agent, Request::Release(end)).expect("the session is there");
    }

    /// Takes a hold that is free.
    pub fn take(&self, agent: usize, fields: Value) -> Uuid {
        match self.ask(agent, Request::Acquire(serde_json::from_value(fields).expect("fields"))) {
            Ok(Reply::Acquired(acquired)) => {
                lock(&self.tally).taken += 1;
                acquired.hold
            }
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Takes so many holds of each agent, all agents at the same time; a session of each.
    pub fn take_all(&self, each: usize) -> Vec<Uuid> {
        thread::scope(|scope| {
            let taking =
                (0..self.count()).map(|agent| scope.spawn(move || self.take_some(agent, each)));
            let taking: Vec<_> = taking.collect();
            taking.into_iter().map(|it| it.join().expect("all are free")).collect()
        })
    }

    fn take_some(&self, agent: usize, count: usize) -> Uuid {
        let session = self.register(agent, &json!({"project": "p"}));
        for number in 0..count {
            let kind = ["leader", "semaphore", "lease"][number % 3];
            let name = format!("{agent}-{number}");
            // A call that is not answered in time, on a machine that does ten other things, is made again.
            let mut fields =
                json!({"session": session, "kind": kind, "name": name, "wait": "block"});
            if kind == "semaphore" {
                fields["limit"] = json!(3);
            }
            self.take(agent, fields);
        }
        session
    }

    fn ask(&self, agent: usize, request: Request) -> Result<Reply, Refusal> {
        let (reply, answer) = oneshot::channel();
        let asked = self.agents[agent].blocking_send(Question { request, reply });
        asked.expect("agents run as long as this");
        answer.blocking_recv().expect("each question is answered")
    }
}

impl Drop for LightAgents {
    fn drop(&mut self) {
        self.agents.clear();
        if let Some(thread) = self.thread.take() {
            // If it has panicked, that was printed.
            let _ = thread.join();
        }
    }
}

fn access(gateway: &Process, key: &Key) -> GatewayAccess {
    GatewayAccess {
        endpoints: vec![Endpoint::Tcp("127.0.0.1".to_owned(), gateway.port())],
        tls: None,
        proxies: Arc::default(),
        key: Some(Secret::new(key.text.as_str()).into()),
        own_key: None,
        connect_timeout: TIMEOUT,
        timeout: TIMEOUT,
    }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agent {
    fn new(
        number: usize,
        access: GatewayAccess,
        rhythm: Rhythm,
        questions: mpsc::Receiver<Question>,
        tally: Arc<Mutex<Tally>>,
    ) -> Agent {
        let settings = Settings {
            host: format!("host {number}").into(),
            poll: Some(Duration::from_secs(1)),
            master: rhythm,
            leader: rhythm,
            lease: rhythm,
            semaphore: rhythm,
            ..Settings::default()
        };
        let seed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut key = [7; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let around = Around {
            driver: Gateway::open(access),
            report: None,
            messages: VecDeque::new(),
            asked: VecDeque::new(),
            next: 0,
            beats: Vec::new(),
            tally,
        };
        let keeper = Keeper::new(settings, key, clock::now());
        let timer = Timer::new().expect("a timer");
        Agent { keeper, turn: Turn::default(), around, timer, questions }
    }

    /// Works until nobody can ask any more.
    async fn run(mut self) {
        loop {
            self.turn.take(&mut self.keeper, &mut self.around);
            if self.turn.has_more() || !self.around.messages.is_empty() {
                // Others have their turn, and connections theirs.
                tokio::task::yield_now().await;
                continue;
            }
            let timeouts = [self.keeper.poll_timeout(), self.around.driver.poll_timeout()];
            self.timer.set(timeouts.into_iter().flatten().min());
            let Agent { around, timer, questions, .. } = &mut self;
            let is_over = poll_fn(|context| {
                around.report = around.report.take().or_else(|| around.poll(context));
                let fired = timer.poll_fired(context).is_ready();
                match questions.poll_recv(context) {
                    Poll::Ready(None) => return Poll::Ready(true),
                    Poll::Ready(Some(question)) => around.messages.push_back(question),
                    Poll::Pending if fired || around.report.is_some() => {}
                    Poll::Pending => return Poll::Pending,
                }
                Poll::Ready(false)
            });
            if is_over.await {
                return;
            }
        }
    }
}

impl Around {
    fn poll(&mut self, context: &mut Context<'_>) -> Option<Report> {
        match self.driver.poll_report(context) {
            Poll::Ready(report) => Some(self.counted(report)),
            Poll::Pending => None,
        }
    }

    fn counted(&mut self, report: Report) -> Report {
        let Report::Answer { call, result, .. } = &report else { return report };
        let mut tally = lock(&self.tally);
        tally.failures += u64::from(result.is_err());
        if let Some(place) = self.beats.iter().position(|(beat, _)| beat == call) {
            let (_, due) = self.beats.swap_remove(place);
            if let Ok(Answer::Renew(answers)) = result {
                let held = answers.iter().filter(|it| matches!(it, BeatAnswer::Held { .. }));
                tally.beats += held.count() as u64;
                tally.beat_calls += 1;
                if tally.beat_ms.len() < SAMPLES_MAX {
                    tally.beat_ms.push(clock::now().since(due).as_secs_f64() * 1e3);
                }
            }
        }
        drop(tally);
        report
    }
}

impl Shell for Around {
    type Message = Question;

    fn now(&mut self) -> Boottime {
        clock::now()
    }

    fn next_report(&mut self) -> Option<Report> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        self.report.take().or_else(|| self.poll(&mut context))
    }

    fn next_ending(&mut self) -> Option<Ending> {
        None
    }

    fn next_message(&mut self) -> Option<Question> {
        self.messages.pop_front()
    }

    fn wake_upstream(&mut self, now: Boottime) {
        if self.driver.poll_timeout().is_some_and(|due| due <= now) {
            self.driver.handle_timeout(now);
        }
    }

    fn receive(&mut self, keeper: &mut Keeper, now: Boottime, question: Question) {
        let Question { request, reply } = question;
        self.next += 1;
        let ticket = Ticket(self.next);
        self.asked.push_back((ticket, reply));
        let peer =
            Peer { uid: 1000, gid: 1000, process: None, watchable: true, quota: Quota::default() };
        keeper.handle_request(now, ticket, peer, request);
    }

    fn shares_journal(&self) -> bool {
        false
    }

    fn submit(&mut self, call: CallId, request: model::Request) {
        let now = clock::now();
        if matches!(request, model::Request::Renew(_)) {
            self.beats.push((call, now));
        }
        self.driver.submit(now, call, request);
    }

    fn dispatch(&mut self) {
        self.driver.dispatch();
    }

    fn write(&mut self, _entry: Entry) {}

    fn secure(&mut self) {}

    fn perform(&mut self, command: Command) {
        let Command::Reply { ticket, reply } = command else { return };
        if let Some(place) = self.asked.iter().position(|(asked, _)| *asked == ticket)
            && let Some((_, asker)) = self.asked.remove(place)
        {
            // Whoever asked may have gone.
            let _ = asker.send(reply);
        }
    }

    fn note(&mut self, note: &Note) {
        let mut tally = lock(&self.tally);
        match note {
            Note::Lost { reason, .. } => {
                tally.lost += u64::from(*reason != LostReason::AgentStopping);
            }
            Note::Jeopardy { .. } => tally.jeopardy += 1,
            _ => {}
        }
    }
}

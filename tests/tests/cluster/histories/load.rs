//! Callers at every node who claim, beat, release and look, and write down when they asked and were told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tenure::wire::Kind;
use tenure_core::model::{Answer, BeatAnswer, ClaimAnswer, Request, StandingEntry};
use tenure_stores::gateway::scope::Mark;
use tenure_tests::harness::{Nodes, Outcome, Way, Wish, boottime_ns, until};
use uuid::Uuid;

use super::model::{ClaimNumber, Done, History, NEVER, ResourceNumber};

/// Callers at each node.
const CALLERS: usize = 3;
/// Resources that are contended for at a time.
const RESOURCES: usize = 6;
/// Operations on each, before it is the turn of others: the search for an order goes through one resource at a time.
const OPERATIONS: usize = 500;
/// The pause after a call that came to nothing.
const PAUSE: Duration = Duration::from_millis(5);
/// A release without an answer is sent so often.
const RELEASES_MAX: usize = 200;

/// Callers that run until they are stopped.
pub(crate) struct Load {
    is_over: AtomicBool,
    /// Calls that were answered.
    answered: AtomicUsize,
    claims: AtomicUsize,
    /// Grants by each node.
    granted: Vec<AtomicUsize>,
}

impl Load {
    /// Runs callers at all nodes beside `meanwhile`; everything that they were told.
    pub(crate) fn run(
        nodes: &mut Nodes,
        seed: u64,
        meanwhile: impl FnOnce(&mut Nodes, &Load),
    ) -> History {
        let hosts = Arc::clone(&nodes.hosts);
        let ports: Vec<u16> = nodes.all().iter().map(|node| node.gateway.port()).collect();
        let granted = ports.iter().map(|_| AtomicUsize::new(0)).collect();
        let load = Load {
            is_over: AtomicBool::new(false),
            answered: AtomicUsize::new(0),
            claims: AtomicUsize::new(0),
            granted,
        };
        let load = &load;
        thread::scope(|scope| {
            let callers: Vec<_> = (0..ports.len() * CALLERS)
                .map(|number| {
                    let home = number % ports.len();
                    let ways =
                        ports.iter().enumerate().map(|(host, port)| Way::new(&hosts, host, *port));
                    let random = ChaCha8Rng::seed_from_u64(seed + number as u64);
                    let caller = Caller {
                        load,
                        ways: ways.collect(),
                        home,
                        random,
                        history: History::default(),
                    };
                    scope.spawn(|| caller.run())
                })
                .collect();
            let end = End(load);
            meanwhile(nodes, load);
            drop(end);
            let mut history = History::default();
            for caller in callers {
                history.join(caller.join().expect("a caller ends well"));
            }
            history
        })
    }

    /// Calls that were answered so far.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until each of these nodes has granted several claims from now on.
    #[track_caller]
    pub(crate) fn grants(&self, what: &str, by: impl IntoIterator<Item = usize>) {
        const SEVERAL: usize = 5;
        let so_far = |node: usize| self.granted[node].load(Ordering::Relaxed);
        let wanted: Vec<_> = by.into_iter().map(|node| (node, so_far(node) + SEVERAL)).collect();
        until(what, || wanted.iter().all(|(node, wanted)| so_far(*node) >= *wanted));
    }

    fn number(&self) -> ClaimNumber {
        self.claims.fetch_add(1, Ordering::Relaxed).try_into().expect("there are fewer")
    }
}

/// Ends the callers, also when a test fails.
struct End<'a>(&'a Load);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

struct Caller<'a> {
    load: &'a Load,
    ways: Vec<Way>,
    home: usize,
    random: ChaCha8Rng,
    history: History,
}

/// A claim that is made.
struct Hold {
    number: ClaimNumber,
    of: ResourceNumber,
    wish: Wish,
    /// When it was renewed last, as far as is known.
    renewed_at: i64,
}

impl Caller<'_> {
    fn run(mut self) -> History {
        while !self.load.is_over.load(Ordering::Relaxed) {
            self.one_round();
        }
        self.history
    }

    /// Claims something once, and ends that again.
    fn one_round(&mut self) {
        let Some(mark) = self.ways[self.home].mark() else { return thread::sleep(PAUSE) };
        let mut hold = self.wish(mark);
        let (times, told) = self.timed(self.home, &hold.wish.claim());
        hold.renewed_at = times[0];
        match told {
            Outcome::Answer(Answer::Claim(ClaimAnswer::Held { token, .. })) => {
                self.load.granted[self.home].fetch_add(1, Ordering::Relaxed);
                self.note_unheard(&hold, times);
                self.note(&hold, times, Done::Granted(hold.number, token));
                self.hold(hold);
            }
            Outcome::Answer(Answer::Claim(ClaimAnswer::Contended { holder, .. })) => {
                let holder = holder.map(|entry| number_of(&entry));
                self.note_unheard(&hold, times);
                self.note(&hold, times, Done::Contended(hold.number, holder));
                if self.random.next_u64().is_multiple_of(8) {
                    self.look(&hold);
                }
            }
            // A copy of it was granted, and has ended.
            Outcome::Answer(Answer::Claim(ClaimAnswer::Gone(_))) => {
                self.note(&hold, times, Done::Unsure(hold.number));
                self.expires(&hold);
            }
            Outcome::Answer(other) => panic!("{other:?} answers no claim"),
            Outcome::Refused => thread::sleep(PAUSE),
            Outcome::Unknown => {
                // No later than its release: that leaves a mark, and a late copy of the claim is refused.
                let back = self.release(&hold);
                self.note(&hold, [times[0], back], Done::Unsure(hold.number));
                if back > hold.ends_at() {
                    self.expires(&hold);
                }
            }
        }
    }
    /// Holds it for a while, and releases it or leaves it to its time.
    fn hold(&mut self, mut hold: Hold) {
        for _ in 0..self.random.next_u64() % 4 {
            thread::sleep(hold.wish.ttl.mul_f64(self.share() * 0.2));
            let (times, told) = self.timed(self.home, &hold.wish.beat());
            let Outcome::Answer(answer) = told else { break };
            let Answer::Renew(beats) = answer else { panic!("{answer:?} answers no beat") };
            match beats[0] {
                BeatAnswer::Held { token, .. } => {
                    self.note(&hold, times, Done::Beaten(hold.number, Some(token)));
                    hold.renewed_at = times[0];
                }
                BeatAnswer::Gone(_) => {
                    self.note(&hold, times, Done::Beaten(hold.number, None));
                    return self.expires(&hold);
                }
                BeatAnswer::Failed(_) => break,
                ref other => panic!("{other:?} answers no beat of a claim"),
            }
        }
        if self.share() < 0.2 || self.release(&hold) > hold.ends_at() {
            self.expires(&hold);
        }
    }

    /// Releases it, at whichever node answers; when that was answered.
    fn release(&mut self, hold: &Hold) -> i64 {
        let request = hold.wish.release();
        let (mut called, mut is_first) = (None, true);
        for way in (0..self.ways.len()).cycle().skip(self.home).take(RELEASES_MAX) {
            let (times, told) = self.timed(way, &request);
            let since = *called.get_or_insert(times[0]);
            match told {
                Outcome::Answer(Answer::Released(found)) => {
                    let found = (is_first || found).then_some(found);
                    self.note(hold, [since, times[1]], Done::Released(hold.number, found));
                    return times[1];
                }
                Outcome::Answer(other) => panic!("{other:?} answers no release"),
                Outcome::Refused | Outcome::Unknown => {
                    is_first = false;
                    thread::sleep(PAUSE);
                }
            }
        }
        let since = called.expect("it was sent");
        self.note(hold, [since, NEVER], Done::Released(hold.number, None));
        NEVER
    }

    fn look(&mut self, hold: &Hold) {
        let (times, told) = self.timed(self.home, &Request::Inspect(hold.wish.resource.clone()));
        if let Outcome::Answer(Answer::Standing(standing)) = told {
            let holder = standing.holders.first().map(|entry| (number_of(entry), entry.token));
            self.note(hold, times, Done::Seen(holder));
        }
    }

    /// The claim may end by itself from then on.
    fn expires(&mut self, hold: &Hold) {
        self.note(hold, [hold.ends_at(), NEVER], Done::Expired(hold.number));
    }

    /// The nodes send a claim again after a change of the leader. A copy may have been granted and have run out before the
    /// next, which is then granted or refused as one that never heard of that grant. Nobody relies on such a grant: that it
    /// ends no sooner than after its ttl is looked at for those that were heard of.
    fn note_unheard(&mut self, hold: &Hold, [called, back]: [i64; 2]) {
        let ttl = hold.ttl_ns();
        for ended in (called + ttl..back).step_by(ttl.unsigned_abs() as usize) {
            self.note(hold, [ended - ttl, back], Done::Unheard(hold.number));
            self.note(hold, [ended, back], Done::UnheardExpired(hold.number));
        }
    }

    fn note(&mut self, hold: &Hold, times: [i64; 2], done: Done) {
        self.history.add(hold.of, times, done);
    }

    /// One call, and when it was sent and answered.
    fn timed(&mut self, way: usize, request: &Request) -> ([i64; 2], Outcome) {
        // A connection is made before.
        self.ways[way].mark();
        let called = now();
        let told = self.ways[way].call(request);
        if matches!(told, Outcome::Answer(_)) {
            self.load.answered.fetch_add(1, Ordering::Relaxed);
        }
        ([called, now()], told)
    }

    /// A number from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.random.next_u64() % 1_000) as f64 / 1_000.0
    }

    /// A new claim on one of the resources whose turn it is.
    fn wish(&mut self, mark: Mark) -> Hold {
        let turn = self.load.answered() / (RESOURCES * OPERATIONS);
        let of = turn * RESOURCES + (self.random.next_u64() % RESOURCES as u64) as usize;
        let number = self.load.number();
        let kind = if of.is_multiple_of(2) { Kind::Lease } else { Kind::Leader };
        let ttl = Duration::from_millis(300 + self.random.next_u64() % 700);
        let id = mark.scoped(Uuid::from_u128(u128::from(number) << NUMBER_AT));
        let wish = Wish::new(id, kind, &format!("r{of}"), ttl);
        let of = of.try_into().expect("there are fewer");
        Hold { number, of, wish, renewed_at: 0 }
    }
}

/// The place of a claim's number in its id, above the mark.
const NUMBER_AT: u32 = 64;

impl Hold {
    /// The earliest end of its time.
    fn ends_at(&self) -> i64 {
        self.renewed_at + self.ttl_ns()
    }

    fn ttl_ns(&self) -> i64 {
        self.wish.ttl.as_nanos().try_into().expect("it is short")
    }
}

fn number_of(entry: &StandingEntry) -> ClaimNumber {
    (entry.claim.0.as_u128() >> NUMBER_AT) as ClaimNumber
}

/// One clock for all, ns.
fn now() -> i64 {
    boottime_ns().try_into().expect("this machine has run for centuries")
}

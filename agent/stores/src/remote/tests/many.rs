//! Thousands of calls on their way at once.

use std::collections::BTreeMap;

use super::*;

const CALLS: u64 = 10_000;

impl Bench {
    /// Everything that is reported now, by call.
    async fn answers(&mut self, into: &mut BTreeMap<u64, Vec<Result<Answer, Failure>>>) {
        self.settle().await;
        while let Poll::Ready(report) =
            self.driver.poll_report(&mut Context::from_waker(Waker::noop()))
        {
            if let Report::Answer { call, result, .. } = report {
                into.entry(call.0).or_default().push(result);
            }
        }
    }

    /// Calls that the driver keeps.
    fn kept(&self, at_rest: usize) -> usize {
        Arc::strong_count(&self.hand) - at_rest
    }
}

#[tokio::test]
async fn each_of_ten_thousand_calls_has_one_answer_and_leaves_nothing() {
    let mut bench = Bench::new().await;
    let at_rest = Arc::strong_count(&bench.hand);
    *bench.hand.mood.lock().unwrap() = Mood::Asks;
    let now = clock::now();
    for call in 0..CALLS {
        let release = Request::Release { claim: id(call.into()), resource: resource() };
        bench.driver.submit(now, CallId(call), release);
    }
    let mut answers = BTreeMap::new();
    while bench.hand.owed.lock().unwrap().len() < CALLS as usize {
        bench.answers(&mut answers).await;
    }
    assert_eq!(bench.kept(at_rest), CALLS as usize);
    assert!(answers.is_empty());

    // A third is answered twice, a third too late, a third never.
    let owed = std::mem::take(&mut *bench.hand.owed.lock().unwrap());
    let (mut late, mut lost) = (Vec::new(), Vec::new());
    for (claim, reply) in owed {
        match claim.0.as_u128() % 3 {
            0 => assert!(reply.try_send(true).and_then(|()| reply.try_send(false)).is_ok()),
            1 => late.push(reply),
            _ => lost.push(reply),
        }
    }
    let doubled = CALLS.div_ceil(3) as usize;
    while answers.len() < doubled {
        bench.answers(&mut answers).await;
    }
    assert!(answers.values().all(|of| of[..] == [Ok(Answer::Released(true))]));
    assert_eq!(bench.kept(at_rest), late.len() + lost.len());

    let by_then = |deadline: &Boottime| *deadline <= now + TIMEOUT;
    while let Some(deadline) = bench.driver.poll_timeout().filter(by_then) {
        bench.driver.handle_timeout(deadline);
    }
    for reply in late {
        // Nobody may be there any more.
        let _ = reply.try_send(true);
    }
    while answers.len() < CALLS as usize || bench.kept(at_rest) > 0 {
        bench.answers(&mut answers).await;
    }
    drop(lost);
    bench.answers(&mut answers).await;
    for (call, of) in answers {
        let unknown = |it: &Result<_, Failure>| matches!(it, Err(Failure::Unknown(_)));
        assert_eq!(of.len(), 1, "{call}");
        assert_eq!(unknown(&of[0]), call % 3 != 0, "{call}: {of:?}");
    }
}

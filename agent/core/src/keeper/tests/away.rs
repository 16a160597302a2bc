//! Acquires while the upstream is away.

use std::time::Duration;

use serde_json::json;
use tenure_wire::Code;

use super::bench::{Bench, Link};
use crate::keeper::{Refusal, Reply, Settings};

#[test]
fn a_wait_in_which_the_upstream_never_answered_does_not_say_that_it_is_taken() {
    for link in [Link::Down, Link::RepliesLost, Link::Hung] {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process"}));
        for kind in ["semaphore", "leader"] {
            bench.set_link(link);
            let fields = json!({"kind": kind, "name": "x", "wait": "block", "timeout_ms": 500});
            let (first, second) =
                (bench.acquire(session, fields.clone()), bench.acquire(session, fields));
            bench.pass(Duration::from_millis(750));
            for ticket in [first, second] {
                let refusal = bench.reply(ticket).unwrap().unwrap_err();
                assert_eq!(
                    refusal.code(),
                    Code::UpstreamUnavailable,
                    "{link:?} {kind}: {refusal:?}"
                );
            }
            bench.set_link(Link::Up);
        }
        bench.release(session, None).unwrap();
        bench.assert_nothing_left();
    }
}

#[test]
fn a_claim_that_waits_for_no_holder_waits_a_while_for_the_upstream() {
    let patience = Settings::default().retry_no_wait;
    for kind in ["semaphore", "leader"] {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process"}));
        bench.set_link(Link::Down);
        let back_in_time = bench.acquire(session, json!({"kind": kind, "name": "x"}));
        bench.pass(patience / 2);
        assert!(bench.reply(back_in_time).is_none(), "{kind}");
        bench.set_link(Link::Up);
        bench.pass(patience / 2);
        assert!(matches!(bench.reply(back_in_time), Some(Ok(Reply::Acquired(_)))), "{kind}");

        // Away for longer, and a caller that does not wait for the end of that.
        bench.set_link(Link::Down);
        let [told, gone] =
            ["y", "z"].map(|name| bench.acquire(session, json!({"kind": kind, "name": name})));
        bench.keeper.handle_cancel(bench.now, gone);
        bench.pass(patience);
        let refusal = bench.reply(told).unwrap().unwrap_err();
        assert_eq!(refusal.code(), Code::UpstreamUnavailable, "{kind}");
        bench.set_link(Link::Up);
        bench.release(session, None).unwrap();
        bench.assert_nothing_left();
    }
}

#[test]
fn a_wait_that_was_once_told_of_a_holder_ends_as_taken_though_the_upstream_is_away() {
    let mut bench = Bench::new();
    let holder = bench.register(json!({"tether": "process"}));
    let session = bench.register(json!({"tether": "process"}));
    for kind in ["semaphore", "leader"] {
        let hold = bench.hold(holder, json!({"kind": kind, "name": "x"}));
        let fields = json!({"kind": kind, "name": "x", "wait": "block", "timeout_ms": 500});
        let before = bench.acquire(session, fields.clone());
        bench.set_link(Link::Down);
        bench.pass(Duration::from_millis(1));
        let after = bench.acquire(session, fields);
        bench.pass(Duration::from_millis(500));
        let code = |reply: Option<Result<Reply, Refusal>>| reply.unwrap().unwrap_err().code();
        assert_eq!(code(bench.reply(before)), Code::WaitTimeout);
        assert_eq!(code(bench.reply(after)), Code::UpstreamUnavailable);
        bench.set_link(Link::Up);
        bench.release(holder, Some(hold)).unwrap();
    }
}

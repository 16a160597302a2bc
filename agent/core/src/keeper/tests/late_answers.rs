//! Waits that are shorter than the store's answer takes.

use std::time::Duration;

use serde_json::json;
use tenure_wire::Code;

use super::bench::{Bench, Link};
use crate::keeper::Reply;

#[test]
fn a_wait_that_ends_before_the_first_answer_tells_what_that_says() {
    for kind in ["semaphore", "leader", "lease"] {
        let mut bench = Bench::new();
        let session = bench.register(json!({"tether": "process"}));
        let holder = bench.register(json!({"tether": "process"}));
        bench.hold(holder, json!({"kind": kind, "name": "taken"}));
        bench.set_link(Link::Hung);
        let wait = |name| json!({"kind": kind, "name": name, "wait": "block", "timeout_ms": 5});
        let taken = bench.acquire(session, wait("taken"));
        let free = bench.acquire(session, wait("free"));
        bench.pass(Duration::from_millis(100));
        assert!(bench.reply(taken).is_none() && bench.reply(free).is_none(), "{kind}");
        bench.set_link(Link::Up);
        bench.pass(Duration::from_millis(150));
        let refused = bench.reply(taken).expect("it is over").unwrap_err();
        assert_eq!(refused.code(), Code::WaitTimeout, "{kind}: {refused:?}");
        let granted = bench.reply(free);
        assert!(matches!(granted, Some(Ok(Reply::Acquired(_)))), "{kind}: {granted:?}");
    }
}

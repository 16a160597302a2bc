//! Requests to the store that count as what they cost, for as long as they cost it.

use std::sync::Arc;

use tenure_core::model::{Answer, Failure, Request};

use crate::access::{Allowance, Caller};
use crate::store::{Store, Then};

/// Asks the store; a read when its turn has come.
///
/// The call counts until the store has answered, even if its caller has given it up: otherwise a principal could have any
/// number of requests in the store's line.
///
/// # Errors
///
/// As [`Store::ask`].
pub(super) async fn ask(
    store: &Store,
    allowance: &Allowance,
    caller: &Caller,
    request: Request,
    then: Option<Then>,
) -> Result<Answer, Failure> {
    let mark = caller.principal.mark;
    let call = caller.call();
    // A second turn in one call could wait for a call that waits for this one.
    let has_turn = call.as_ref().is_some_and(|call| call.has_turn());
    let read = allowance.reads.begin(allowance.reader(caller), &request, has_turn).await;
    if let (Some(call), Some(turn)) = (&call, read.as_ref().and_then(|read| read.turn.as_ref())) {
        call.keep(Arc::clone(turn));
    }
    let answered = Box::new(move |result: &_| {
        if let (Some(read), Ok(answer)) = (&read, result) {
            read.count(answer);
        }
        if let Some(then) = then {
            then(result);
        }
        drop((call, read));
    });
    store.ask_then(mark, request, answered).await
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use axum::http::Request as Call;
    use futures_util::FutureExt;
    use tenure_core::model::Resource;
    use tenure_host::clock;
    use tenure_wire::Kind;

    use super::*;
    use crate::access::{Access, Quotas};
    use crate::store::tests::open;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn holders() -> Request {
        let name = "s".into();
        Request::Holders(Resource { tenant: "t".into(), kind: Kind::Semaphore, name })
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_call_that_is_given_up_counts_until_the_store_has_answered() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _thread) = open(&dir);
        let allowance = Allowance::new(Quotas { calls: 1, ..Quotas::default() }, 1 << 20);
        let mut caller = Access::anybody().caller(&Call::new(())).unwrap();
        // The store's thread stands still.
        let (go_on, stand) = mpsc::channel::<()>();
        let standing = Box::new(move |_: &_| assert!(stand.recv().is_err()));
        let first = store.ask_then(caller.principal.mark, holders(), standing);
        assert!(Box::pin(first).now_or_never().is_none());

        let call = caller.begin_call(false, &allowance).unwrap();
        let asked = ask(&store, &allowance, &caller, holders(), None);
        assert!(Box::pin(asked).now_or_never().is_none());
        drop(call);
        assert!(caller.begin_call(false, &allowance).is_err(), "it is in the store's line");
        drop(go_on);
        let began = clock::now();
        while caller.begin_call(false, &allowance).is_err() {
            assert!(clock::now().since(began) < DEADLINE);
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_call_has_one_turn_and_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _thread) = open(&dir);
        let allowance = Allowance::default();
        let mut caller = Access::anybody().caller(&Call::new(())).unwrap();
        let call = caller.begin_call(false, &allowance).unwrap();
        let reader = allowance.reader(&caller);
        for _ in 0..4 {
            ask(&store, &allowance, &caller, holders(), None).await.unwrap();
        }
        let second = allowance.reads.begin(reader, &holders(), false).now_or_never();
        assert!(second.is_some(), "there is one more turn");
        assert!(allowance.reads.begin(reader, &holders(), false).now_or_never().is_none());
        drop(call);
        assert!(allowance.reads.begin(reader, &holders(), false).now_or_never().is_some());
    }
}

//! Connections to real Redis servers, through what can happen to them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod collisions;
mod deeds;
mod examine;
mod fake;
mod life;
mod sentinel;
mod server;
mod sign_in;
mod tls;

use std::sync::Arc;

use tenure_harness::DEADLINE;
use tenure_stores::redis::address::Address;
use tenure_stores::redis::connection::Connection;
use tenure_stores::redis::layout::Layout;
use tenure_stores::redis::settings::RedisAccess;
use tenure_stores::remote::{self, Dialer, LinkState, Purpose};
use tokio::time::timeout;

type Link = remote::Link<Connection>;
type Connected = remote::Connected<Connection>;

fn dialer(access: RedisAccess) -> Arc<Dialer<Address>> {
    Arc::new(Dialer::new(Address::new(access, Layout::default())))
}

fn open(access: RedisAccess, purpose: Purpose) -> Link {
    Link::open(dialer(access), purpose)
}

async fn up(link: &Link) -> Connected {
    let up = timeout(DEADLINE, link.up()).await;
    up.unwrap_or_else(|_| panic!("not up: {:?}", link.state())).expect("the runtime lives")
}

/// Looks again and again until there is something.
async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            // Lets everything else on this thread happen.
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, looking).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// The error of a link that is down.
fn error(link: &Link) -> Option<String> {
    match link.state() {
        LinkState::Down { error } => Some(error),
        LinkState::Connecting | LinkState::Up => None,
    }
}

/// Waits until a link says so.
async fn says(link: &Link, expected: &str) -> String {
    let looking = async {
        loop {
            if let Some(error) = error(link).filter(|error| error.contains(expected)) {
                return error;
            }
            tokio::task::yield_now().await;
        }
    };
    let said = timeout(DEADLINE, looking).await;
    said.unwrap_or_else(|_| panic!("{:?} does not say {expected:?}", link.state()))
}

/// The first attempt fails, with this in the text, and the text has nothing secret.
async fn refused(access: RedisAccess, expected: &str) {
    let link = open(access, Purpose::Commands);
    let failure = timeout(DEADLINE, link.ready()).await.unwrap().unwrap_err();
    assert!(failure.cause().contains(expected), "{failure:?} does not say {expected:?}");
    assert!(!failure.cause().contains("hunter2"), "{failure:?}");
    assert_eq!(error(&link).as_deref(), Some(failure.cause()));
}

async fn get(connected: &Connected, key: &str) -> Option<String> {
    let mut connection = connected.connection.clone();
    redis::cmd("GET").arg(key).query_async(&mut connection).await.unwrap()
}

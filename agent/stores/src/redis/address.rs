//! The address of a Redis, now and in general.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::sentinel;
use super::settings::{Login, Place, RedisAccess, RedisServer};
use super::trouble::Trouble;
use crate::settings::tls::Trust;

/// The address of a Redis, the credentials for it, and how long to try. Shared by the links to it.
#[derive(Debug)]
pub struct Address {
    access: RedisAccess,
    /// The Sentinel that is asked first: the last one that knew.
    informant: AtomicUsize,
    /// Lines that have been logged since a link was last up: all links meet the same trouble.
    logged: Mutex<Vec<String>>,
    /// A link is up again; the others need not wait for their next attempt.
    recovered: Notify,
}

/// Different troubles that are logged between two successes, at most.
const LOGGED_MAX: usize = 16;

/// The place of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spot {
    Tcp(Place),
    Unix(PathBuf),
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spot::Tcp(place) => place.fmt(f),
            Spot::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    /// The address as it was configured.
    pub fn new(access: RedisAccess) -> Address {
        Address {
            access,
            informant: AtomicUsize::new(0),
            logged: Mutex::default(),
            recovered: Notify::new(),
        }
    }

    /// The number of the database.
    pub(super) fn db(&self) -> u32 {
        self.access.db
    }

    /// How long a call may take; its caller's to keep.
    pub fn timeout(&self) -> Duration {
        self.access.timeout
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.access.connect_timeout
    }

    pub(super) fn login(&self) -> &Login {
        &self.access.login
    }

    pub(super) fn tls(&self) -> Option<&Trust> {
        self.access.tls.as_ref()
    }

    /// True if Sentinels say where the master is.
    pub(super) fn moves(&self) -> bool {
        matches!(self.access.server, RedisServer::Sentinel { .. })
    }

    /// The place of the master now. Asks Sentinels, if there are any, for no longer than it may
    /// take to connect.
    pub(super) async fn locate(&self) -> Result<Spot, Trouble> {
        let (sentinels, master, login) = match &self.access.server {
            RedisServer::Tcp(place) => return Ok(Spot::Tcp(place.clone())),
            RedisServer::Unix(path) => return Ok(Spot::Unix(path.clone())),
            RedisServer::Sentinel { sentinels, master, login } => (sentinels, master, login),
        };
        let first = self.informant.load(Ordering::Relaxed) % sentinels.len().max(1);
        let (later, sooner) = sentinels.split_at(first);
        let asked: Vec<&Place> = sooner.iter().chain(later).collect();
        let query = sentinel::Query { master, login, tls: self.tls() };
        let (answered, spot) = query.ask(&asked, self.connect_timeout()).await?;
        self.informant.store(first + answered, Ordering::Relaxed);
        Ok(spot)
    }

    /// True if nobody has logged this trouble yet; then the caller does.
    pub(super) fn is_news(&self, trouble: &str) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= LOGGED_MAX || logged.iter().any(|other| other == trouble) {
            return false;
        }
        logged.push(trouble.to_owned());
        true
    }

    /// Says that a link is up.
    pub(super) fn succeeded(&self) {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.recovered.notify_waiters();
    }

    /// Waits until another link is up.
    pub(super) async fn recovered(&self) {
        self.recovered.notified().await;
    }

    /// The Sentinel's answer was of no use: next time another one is asked first.
    pub(super) fn misled(&self) {
        self.informant.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_news_once_until_a_link_is_up() {
        let address = Address::new(RedisAccess::plain(RedisServer::Unix("/s".into())));
        assert!(address.is_news("a") && address.is_news("b"));
        assert!(!address.is_news("a") && !address.is_news("b"));
        let logged = (0..100).filter(|number| address.is_news(&number.to_string())).count();
        assert_eq!(logged, LOGGED_MAX - 2);
        address.succeeded();
        assert!(address.is_news("a"));
    }
}

//! Keys of gateways, and the exchange of join keys.

use std::future::Future;

use super::super::RedisKeyring;
use super::super::settings::{RedisAccess, RedisServer};
use super::store::Store;
use crate::keyring::{Joined, KEYS_MAX, KeyRecord, Keyring};

const VERSION: &str = "tenure:keys:version";

fn with_keys<F: Future<Output = ()>>(test: impl FnOnce(Store, RedisKeyring) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::new();
        let access = RedisAccess::plain(RedisServer::Unix(store.socket()));
        let keys = RedisKeyring::open(access, store.layout.clone());
        test(store, keys).await;
    });
}

fn key(id: &str, principal: &str) -> KeyRecord {
    KeyRecord {
        id: id.to_owned(),
        principal: principal.to_owned(),
        sha256: format!("hash of {id}"),
        bounds: "{}".to_owned(),
        ..KeyRecord::default()
    }
}

#[test]
fn a_key_that_was_revoked_is_not_put_back_by_its_exchange() {
    with_keys(async |store, keys| {
        assert_eq!(keys.add(key("join", "laptop"), None).await.unwrap(), Joined::Done);
        let own = key("own", "laptop");
        let join = || keys.add(own.clone(), Some("join".to_owned()));
        assert_eq!(join().await.unwrap(), Joined::Done);
        let version: String = store.run(&["GET", VERSION]);
        // As if the answer had been lost.
        assert_eq!(join().await.unwrap(), Joined::Again);
        assert_eq!(store.run::<String>(&["GET", VERSION]), version, "nothing was put");
        let joined = keys.one("join".to_owned()).await.unwrap().unwrap().joined;
        assert_eq!(joined.as_deref(), Some("own"));
        assert_eq!(keys.remove(vec!["own".to_owned()]).await.unwrap(), 1);
        assert_eq!(join().await.unwrap(), Joined::Revoked);
        assert_eq!(keys.one("own".to_owned()).await.unwrap(), None);
        let other = keys.add(key("other", "laptop"), Some("join".to_owned()));
        assert_eq!(other.await.unwrap(), Joined::Used);
    });
}

#[test]
fn a_join_key_that_was_revoked_meanwhile_is_not_made_anew() {
    with_keys(async |store, keys| {
        let joined = keys.add(key("own", "laptop"), Some("join".to_owned())).await.unwrap();
        assert_eq!(joined, Joined::Gone);
        assert_eq!(store.keys(), Vec::<String>::new());
    });
}

#[test]
fn no_key_is_taken_over_by_an_exchange_and_the_join_key_is_still_good() {
    with_keys(async |_, keys| {
        let (join, victim) = (key("join", "laptop"), key("victim", "admin"));
        for key in [&join, &victim] {
            assert_eq!(keys.add(key.clone(), None).await.unwrap(), Joined::Done);
        }
        // With the hash that is there, as somebody who read it would.
        for id in ["victim", "join"] {
            let joined = keys.add(key(id, "laptop"), Some("join".to_owned())).await.unwrap();
            assert_eq!(joined, Joined::Taken, "{id}");
        }
        assert_eq!(keys.one("victim".to_owned()).await.unwrap(), Some(victim));
        assert_eq!(keys.one("join".to_owned()).await.unwrap(), Some(join));
        let joined = keys.add(key("own", "laptop"), Some("join".to_owned())).await.unwrap();
        assert_eq!(joined, Joined::Done);
    });
}

#[test]
fn at_the_limit_no_key_is_added_and_others_are_changed_and_removed() {
    with_keys(async |store, keys| {
        assert_eq!(keys.add(key("join", "laptop"), None).await.unwrap(), Joined::Done);
        let script = "for i = 2, ARGV[1] do redis.call('SADD', KEYS[1], 'key' .. i) end";
        store.run::<()>(&["EVAL", script, "1", "tenure:keys", &KEYS_MAX.to_string()]);
        assert_eq!(keys.add(key("more", "laptop"), None).await.unwrap(), Joined::Full);
        let joined = keys.add(key("own", "laptop"), Some("join".to_owned())).await.unwrap();
        assert_eq!(joined, Joined::Full);
        assert_eq!(
            keys.add(key("join", "other"), None).await.unwrap(),
            Joined::Done,
            "it is there"
        );
        assert_eq!(keys.remove(vec!["key2".to_owned(), "none".to_owned()]).await.unwrap(), 1);
        let joined = keys.add(key("own", "laptop"), Some("join".to_owned())).await.unwrap();
        assert_eq!(joined, Joined::Done);
        // Another program may have added some: they are not read, and what was removed is seen.
        store.run::<()>(&["SADD", "tenure:keys", "x", "y"]);
        let failure = keys.all().await.unwrap_err();
        assert!(failure.cause().contains("40000 at most"), "{failure:?}");
        assert_eq!(keys.ids().await.unwrap().len(), KEYS_MAX + 2);
    });
}

//! Messages that are published on a Redis.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use redis::Connection;
use serde_json::Value;

use crate::DEADLINE;

/// Between two looks at whether the listener is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Hears published messages until it is dropped.
pub struct Listener {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    heard: Vec<(String, String)>,
    unwanted: bool,
}

impl Listener {
    /// Returns when Redis has confirmed all subscriptions.
    #[track_caller]
    pub(super) fn start(mut connection: Connection, patterns: &[&str]) -> Listener {
        let shared = Arc::new(Shared::default());
        let (subscribed, wait) = sync_channel(1);
        std::thread::spawn({
            let shared = Arc::clone(&shared);
            let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
            move || {
                let mut subscription = connection.as_pubsub();
                subscription.psubscribe(&patterns).expect("Redis takes a subscription");
                subscription.set_read_timeout(Some(LOOK_EVERY)).expect("a socket has timeouts");
                subscribed.send(()).expect("the test waits for it");
                loop {
                    match subscription.get_message() {
                        Ok(message) => {
                            let channel = message.get_channel_name().to_owned();
                            let payload = message.get_payload().expect("messages are UTF-8");
                            let mut state = shared.state.lock().expect("no thread panics with it");
                            state.heard.push((channel, payload));
                            shared.changed.notify_all();
                        }
                        Err(error) if error.is_timeout() => {}
                        Err(_) => return,
                    }
                    if shared.state.lock().expect("no thread panics with it").unwanted {
                        return;
                    }
                }
            }
        });
        wait.recv_timeout(DEADLINE).expect("Redis confirms a subscription");
        Listener { shared }
    }

    /// Everything so far: channel and message, in the order in which they came.
    pub fn all(&self) -> Vec<(String, String)> {
        self.shared.state.lock().expect("no thread panics with it").heard.clone()
    }

    /// Waits for the first message on a channel for which `pick` finds something, earlier ones
    /// included.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut pick: impl FnMut(&str, &str) -> Option<T>) -> T {
        let mut found = None;
        let state = self.shared.state.lock().expect("no thread panics with it");
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, DEADLINE, |state| {
                found = state.heard.iter().find_map(|(channel, text)| pick(channel, text));
                found.is_none()
            })
            .expect("no thread panics with it");
        found.unwrap_or_else(|| panic!("waited in vain for {what}; heard {:#?}", state.heard))
    }

    /// The JSON messages on a channel so far whose `type` is this one.
    pub fn of_type(&self, channel: &str, kind: &str) -> Vec<Value> {
        self.all()
            .into_iter()
            .filter(|(on, _)| on == channel)
            .filter_map(|(_, text)| serde_json::from_str(&text).ok())
            .filter(|message: &Value| message["type"] == kind)
            .collect()
    }

    /// Waits for the first JSON message on a channel whose `type` is this one.
    #[track_caller]
    pub fn message(&self, channel: &str, kind: &str) -> Value {
        self.wait_for(&format!("{kind} on {channel}"), |on, text| {
            let message: Value = serde_json::from_str(text).ok().filter(|_| on == channel)?;
            (message["type"] == kind).then_some(message)
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Ok(mut state) = self.shared.state.lock() {
            state.unwanted = true;
        }
    }
}

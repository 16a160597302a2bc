//! Messages that are published on a Redis.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use redis::Connection;
use serde_json::Value;

use crate::{DEADLINE, Watched};

/// Between two looks at whether the listener is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Hears published messages until it is dropped.
pub struct Listener {
    state: Arc<Watched<State>>,
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
        let state = Arc::new(Watched::<State>::default());
        let (subscribed, wait) = sync_channel(1);
        std::thread::spawn({
            let state = Arc::clone(&state);
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
                            state.change(|state| state.heard.push((channel, payload)));
                        }
                        Err(error) if error.is_timeout() => {}
                        Err(_) => return,
                    }
                    if state.lock().unwanted {
                        return;
                    }
                }
            }
        });
        wait.recv_timeout(DEADLINE).expect("Redis confirms a subscription");
        Listener { state }
    }

    /// Everything so far: channel and message, in the order in which they came.
    pub fn all(&self) -> Vec<(String, String)> {
        self.state.lock().heard.clone()
    }

    /// Waits for the first message on a channel for which `pick` finds something, earlier ones
    /// included.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut pick: impl FnMut(&str, &str) -> Option<T>) -> T {
        let found = self
            .state
            .wait(|state| state.heard.iter().find_map(|(channel, text)| pick(channel, text)));
        found.unwrap_or_else(|state| panic!("waited in vain for {what}; heard {:#?}", state.heard))
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
        self.state.lock().unwanted = true;
    }
}

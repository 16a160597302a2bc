//! What is told to others: the engine by its effects, the scripts by publishing.

use serde_json::Value;
use tenure_core::model::{Change, ClaimId};
use tenure_stores::redis::layout::{Channel, Layout};

use super::allowances::nameless;
use super::compare::Comparer;
use super::oracle::Oracle;
use super::server::Published;

/// A message of the engine.
#[derive(Debug, Clone)]
pub(super) struct Told {
    channel: String,
    message: Message,
    /// Whether time alone brought it about. Then nobody may be there to publish it, or somebody who
    /// comes later.
    by_itself: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Message {
    /// Of a project or session.
    Event(Value),
    /// A grant was taken away.
    Lost(ClaimId),
}

impl Told {
    /// What the engine tells, as it goes out on a channel; `None` for hints that the upstream gives in
    /// other ways.
    pub(super) fn of(layout: &Layout, change: &Change, by_itself: bool) -> Option<Told> {
        let (channel, message) = match change {
            Change::Message { session: Some(session), payload, .. } => {
                let channel = layout.session_channel(&session.0.hyphenated().to_string());
                (channel, Message::Event(payload.clone()))
            }
            Change::Message { tenant, project, session: None, payload } => {
                (layout.project_channel(tenant, project), Message::Event(payload.clone()))
            }
            Change::Lost { claim, .. } => (layout.lost_channel(), Message::Lost(*claim)),
            Change::Resource(_) | Change::Granted { .. } => return None,
        };
        Some(Told { channel, message, by_itself })
    }

    /// Whether the text says so, but for tokens.
    fn says(&self, text: &str) -> bool {
        let mut event = match &self.message {
            Message::Lost(claim) => return text == claim.0.hyphenated().to_string(),
            Message::Event(event) => event.clone(),
        };
        let Ok(mut found) = serde_json::from_str::<Value>(text) else { return false };
        if self.by_itself {
            nameless(&mut event, &found);
        }
        for value in [&mut found, &mut event] {
            if let Some(token) = value.get_mut("token") {
                *token = Value::Null;
            }
        }
        found == event
    }
}

/// What the engine told, and the scripts have not published yet.
#[derive(Default)]
pub(super) struct Messages {
    open: Vec<Told>,
}

impl Messages {
    /// Checks what was published since the last time against what the engine told since.
    ///
    /// # Errors
    ///
    /// When something was published that did not happen or that was published before, or when
    /// something that somebody did was not published.
    pub(super) fn check(
        &mut self,
        oracle: &Oracle,
        comparer: &mut Comparer,
        layout: &Layout,
        told: Vec<Told>,
        published: &[Published],
    ) -> Result<(), String> {
        self.open.extend(told);
        for it in published {
            match layout.channel(it.channel.as_bytes()) {
                None => return Err(format!("a message on an unknown channel: {it:?}")),
                Some(Channel::Routes { tenant }) => {
                    comparer.routes.published(&tenant, &it.text)?;
                    continue;
                }
                Some(_) => {}
            }
            let fits = |told: &Told| told.channel == it.channel && told.says(&it.text);
            // What is owed comes before what need not be told.
            let owed = self.open.iter().position(|told| !told.by_itself && fits(told));
            let Some(at) = owed.or_else(|| self.open.iter().position(fits)) else {
                return Err(format!("nobody told what was published: {it:?}"));
            };
            let told = self.open.remove(at);
            if let (Some(engine), Some(upstream)) = (told.message.token(), token(&it.text)) {
                comparer.tokens.pair(oracle, engine, upstream)?;
            }
        }
        comparer.routes.all_published()?;
        match self.open.iter().find(|told| !told.by_itself) {
            Some(told) => Err(format!("{told:?} was not published")),
            None => Ok(()),
        }
    }
}

impl Message {
    fn token(&self) -> Option<u64> {
        match self {
            Message::Event(event) => event.get("token")?.as_u64(),
            Message::Lost(_) => None,
        }
    }
}

fn token(text: &str) -> Option<u64> {
    serde_json::from_str::<Value>(text).ok()?.get("token")?.as_u64()
}

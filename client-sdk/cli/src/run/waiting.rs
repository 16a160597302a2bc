//! The time in the queue: what a person is told meanwhile, and what a session that promised to get on
//! must say.

use std::cell::Cell;
use std::time::Duration;

use tenure::client::{CallError, Client};
use tenure::wire::{Event, HoldState, HoldView, Holder, Kind, Standing};
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use super::deadlock::deadlock;
use crate::ANSWER_MAX;
use crate::failure::{Who, brief, ordinal};
use crate::output::say;
use crate::show::{shown, when};

/// A shorter wait is not worth a word.
const SILENT: Duration = Duration::from_secs(2);
/// How often is told what is waited for.
const SPEAK_EVERY: Duration = Duration::from_secs(60);
/// A session beats this often while it waits, as part of the time that it promised.
const BEATS: u32 = 3;

/// What the campaign knows of its place in the queue.
#[derive(Default)]
pub(super) struct Place {
    session: Cell<Option<Uuid>>,
    position: Cell<Option<u64>>,
}

impl Place {
    pub(super) fn session_is(&self, session: Uuid) {
        self.session.set(Some(session));
    }

    pub(super) fn session(&self) -> Option<Uuid> {
        self.session.get()
    }

    /// Takes what an event of the session tells. It has one hold.
    pub(super) fn heard(&self, event: &Event) {
        let is_waiting = |view: &&HoldView| view.state == HoldState::Waiting;
        match event {
            Event::Queued(event) => self.position.set(Some(event.position)),
            Event::Snapshot(snapshot) => {
                let view = snapshot.holds.iter().find(is_waiting);
                self.position.set(view.and_then(|view| view.position).or(self.position.get()));
            }
            _ => {}
        }
    }
}

/// Speaks of a wait. Takes the place in the queue; never ends.
pub(super) struct Waiting<'a> {
    pub(super) client: &'a Client,
    /// `leader/cleanup`, for messages.
    pub(super) what: &'a str,
    pub(super) kind: Kind,
    /// For a master the project.
    pub(super) name: &'a str,
    pub(super) tenant: Option<&'a str>,
    pub(super) place: &'a Place,
}

impl Waiting<'_> {
    /// Says on stderr what is waited for, after two seconds and then each minute.
    pub(super) async fn speak(&self) {
        let mut at = Instant::now() + SILENT;
        loop {
            pause_until(at).await;
            let standing = self.client.standing(self.kind, self.name, self.tenant);
            let answer = timeout(ANSWER_MAX, standing).await;
            let standing = answer.unwrap_or_else(|_| {
                let path = self.client.path().to_owned();
                Err(CallError::TimedOut { path, after: ANSWER_MAX })
            });
            let mut line = line(self.what, &standing, self.place.position.get());
            if let Ok(standing) = &standing
                && let Some(ours) = deadlock(self.client, standing).await
            {
                line += &format!(
                    "; perhaps a deadlock: its command waits for {ours}, which is held around this one; end one of the two"
                );
            }
            say(&line);
            at += SPEAK_EVERY;
        }
    }

    /// Keeps the promise of a command that has not been started yet.
    pub(super) async fn beat(&self, progress: Duration) {
        loop {
            pause_until(Instant::now() + progress / BEATS).await;
            if let Some(session) = self.place.session() {
                // An agent that does not answer does not count either.
                let _answer = timeout(progress, self.client.beat(session)).await;
            }
        }
    }
}

async fn pause_until(at: Instant) {
    #[expect(clippy::disallowed_methods, reason = "the pace of what is said while waiting")]
    sleep_until(at).await;
}

fn line(what: &str, standing: &Result<Standing, CallError>, position: Option<u64>) -> String {
    let standing = match standing {
        Ok(standing) => standing,
        Err(CallError::Refused(problem)) => {
            return format!("waiting for {what}: {}", problem.detail);
        }
        Err(error) => return format!("waiting for {what}: {error}"),
    };
    let held = match (&standing.holders[..], standing.limit) {
        ([], _) => "nobody holds it".to_owned(),
        ([holder], None) => format!("held by {}", who(holder)),
        ([first, ..], limit) => {
            let of = limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
            format!("{}{of} held, the longest by {}", standing.holding, who(first))
        }
    };
    let place = position.map(|position| format!(", {} in line", ordinal(position)));
    format!("waiting for {what}: {held}{}", place.unwrap_or_default())
}

fn who(holder: &Holder) -> String {
    let Holder { host, name, since_ms, token, .. } = holder;
    if *token == 0 {
        return Who(holder).to_string();
    }
    let (name, host) = (shown(name), shown(host));
    if let Some(kept) = when::kept(holder, when::now()) {
        return format!("{name} on {host}, {kept}");
    }
    format!("{name} on {host} for {} (token {token})", brief(Duration::from_millis(*since_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(limit: Option<u32>, holders: usize) -> Standing {
        let holder = Holder {
            host: "hostb".to_owned(),
            name: "backup.sh".to_owned(),
            since_ms: 22_320_000,
            token: 17,
            ..Holder::default()
        };
        Standing {
            tenant: "default".to_owned(),
            kind: Kind::Leader,
            name: "nightly".to_owned(),
            limit,
            holders: vec![holder; holders],
            holding: holders as u64,
            waiters: vec![],
            waiting: 1,
            sessions: vec![],
            members: 0,
        }
    }

    #[test]
    fn a_wait_names_the_holder_and_the_place_in_line() {
        let check = |limit, holders, position, expected: &str| {
            let said = line("leader/nightly", &Ok(standing(limit, holders)), position);
            assert_eq!(said, format!("waiting for leader/nightly: {expected}"));
        };
        let one = "held by backup.sh on hostb for 6h12m (token 17)";
        check(None, 1, Some(1), &format!("{one}, 1st in line"));
        check(None, 1, None, one);
        let longest = "held, the longest by backup.sh on hostb for 6h12m (token 17)";
        check(Some(2), 2, Some(22), &format!("2 of 2 {longest}, 22nd in line"));
        check(None, 0, Some(3), "nobody holds it, 3rd in line");
    }

    #[test]
    fn a_hostile_name_does_not_reach_the_terminal() {
        let mut hostile = standing(None, 1);
        hostile.holders[0].name = "\u{1b}]0;x\u{7}".to_owned();
        hostile.holders[0].host = "h".repeat(70_000);
        let said = line("leader/nightly", &Ok(hostile), None);
        assert!(!said.contains(char::is_control) && said.chars().count() < 700, "{said}");
    }
}

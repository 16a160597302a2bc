//! The engine's side of a transcript, to the second and to the token.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::engine::journal::{Entry, Saved};
use tenure_core::engine::{Effect, Engine, EngineSettings, TokenRange};
use tenure_core::model::{ClaimId, Request};
use tenure_core::time::Boottime;

use super::line::{Asked, Line, id};
use super::show::{show, show_change};

/// A token that no transcript comes to.
const NEVER_GRANTED: u64 = 999_999;

struct Run {
    engine: Engine,
    settings: EngineSettings,
    tokens: TokenRange,
    granted: HashMap<ClaimId, u64>,
}

/// The transcript as the engine has it.
pub(super) fn run(lines: &[&str]) -> Vec<String> {
    let mut settings = EngineSettings::default();
    let mut tokens = TokenRange { first: 1, last: 1_000_000 };
    let mut actual = Vec::new();
    for line in lines.iter().filter(|line| line.starts_with("settings")) {
        actual.push((*line).to_owned());
        set(line, &mut settings, &mut tokens);
    }
    let engine = Engine::new(settings.clone(), tokens);
    let mut run = Run { engine, settings, tokens, granted: HashMap::new() };
    for line in lines {
        if let Some(parsed) = Line::parse(line) {
            actual.push((*line).to_owned());
            run.step(&parsed, &mut actual);
        }
    }
    actual
}

fn set(line: &str, settings: &mut EngineSettings, tokens: &mut TokenRange) {
    for (key, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
        let number = |text: &str| text.parse().expect("a number");
        match key {
            "queue_max" => settings.queue_max = number(value) as usize,
            "tombstones_max" => settings.tombstones_max = number(value) as usize,
            "tokens" => {
                let (first, last) = value.split_once("..").expect("tokens=FIRST..LAST");
                *tokens = TokenRange { first: number(first), last: number(last) };
            }
            other => panic!("{other:?} is not a setting"),
        }
    }
}

impl Run {
    fn step(&mut self, line: &Line<'_>, out: &mut Vec<String>) {
        let now = at(line.second);
        match line.asked() {
            Asked::Request(request) => self.ask(now, request, out),
            Asked::RevokeOf { resource, of } => {
                let token = of.and_then(|of| self.granted.get(&of).copied());
                let token = Some(token.unwrap_or(NEVER_GRANTED));
                self.ask(now, Request::Revoke { resource, token, revocation: None }, out);
            }
            Asked::Reconnect => {}
            Asked::Nothing => self.engine.handle_timeout(now),
            Asked::OfEngine => match line.words[0] {
                "quarantine" => self.engine.quarantine(at(line.number("until", 0))),
                "extend" => self.engine.extend_tokens(line.number("upto", 0)),
                _ => self.restart(now, line.option("gone")),
            },
        }
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Persist(Entry::Grant(grant)) => {
                    self.granted.insert(grant.claim.id, grant.token);
                }
                Effect::Persist(_) => {}
                Effect::ReserveTokens => out.push("! reserve tokens".to_owned()),
                Effect::Change(change) => {
                    out.push(format!("! {}", show_change(&change)));
                }
            }
        }
    }

    fn ask(&mut self, now: Boottime, request: Request, out: &mut Vec<String>) {
        if request.is_read() {
            // As shells do: a read takes no step.
            self.engine.handle_timeout(now);
        }
        let answer = self.engine.handle(now, request);
        out.push(format!("= {}", show(&answer)));
    }

    /// As after an end of its process. The holder of the claim that is gone knows that it has run out.
    fn restart(&mut self, now: Boottime, gone: Option<&str>) {
        let mut saved = Saved::default();
        for row in self.engine.rows().iter().filter_map(|key| self.engine.row(key)) {
            match row {
                Entry::Grant(grant) => saved.grants.push(*grant),
                Entry::Waiter(waiter) => saved.waiters.push(*waiter),
                Entry::Limit { resource, limit } => saved.limits.push((resource, limit)),
                Entry::Session(record) => saved.sessions.push(*record),
                Entry::Routes { tenant, version } => saved.routes.push((tenant, version)),
                other => panic!("{other:?} is not a row"),
            }
        }
        let gone = gone.map(|gone| (ClaimId(id(gone)), now)).into_iter().collect();
        let (settings, tokens) = (self.settings.clone(), self.tokens);
        self.engine = Engine::restore(settings, tokens, saved, &gone, now);
    }
}

fn at(second: u64) -> Boottime {
    Boottime::ZERO + Duration::from_secs(second)
}

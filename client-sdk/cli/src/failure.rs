//! The failure of a subcommand: one line for people, one number for programs.

use std::fmt;
use std::time::Duration;

use serde_json::json;
use tenure::client::CallError;
pub(crate) use tenure::wire::brief;
use tenure::wire::{Code, Holder, Problem};

use crate::exit;
use crate::show::{shown, when};

/// Why a subcommand failed. Shows as the one line on stderr, without `tenure: `.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) line: String,
    pub(crate) code: u8,
    /// What the agent said, if it refused.
    problem: Option<Box<Problem>>,
}

impl Failure {
    pub(crate) fn new(code: u8, line: impl Into<String>) -> Failure {
        Failure { line: line.into(), code, problem: None }
    }

    /// A call about `what` failed.
    pub(crate) fn of_call(what: &str, error: &CallError) -> Failure {
        let code = match error {
            CallError::Refused(problem) => return Failure::of_problem(what, problem),
            CallError::BadSocket { .. } => exit::USAGE,
            _ => exit::UNAVAILABLE,
        };
        Failure::new(code, format!("{what}: {error}"))
    }

    fn of_problem(what: &str, problem: &Problem) -> Failure {
        let code = match problem.code {
            // Scripts take this status for "somebody else has it", so nothing else may have it.
            Code::Contended | Code::WaitTimeout => exit::NOT_ACQUIRED,
            Code::HoldLost => exit::LOST,
            // Only an agent that was away has forgotten a session of this process.
            Code::UpstreamUnavailable | Code::Stopping | Code::SessionLost => exit::UNAVAILABLE,
            Code::Unauthorized | Code::Forbidden => exit::FORBIDDEN,
            Code::Invalid | Code::TooLarge => exit::USAGE,
            _ => exit::REFUSED,
        };
        let line = match (problem.code, &problem.holder) {
            (Code::Contended, Some(holder)) => {
                format!("{what}: taken by {}; to wait for it leave out --no-wait", Who(holder))
            }
            (Code::Invalid | Code::NotFound | Code::Forbidden, _) => {
                format!("{what}: {}", in_units(&problem.detail))
            }
            (Code::SessionUnknown, _) => format!(
                "{what}: you have no such session here; `tenure status --verbose` lists yours"
            ),
            _ => format!("{what}: {}", problem.detail),
        };
        Failure { problem: Some(Box::new(problem.clone())), ..Failure::new(code, line) }
    }

    /// What the agent said, if it refused.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.problem.as_deref()
    }

    /// The same failure in other words.
    pub(crate) fn worded(self, code: u8, line: String) -> Failure {
        Failure { line, code, ..self }
    }

    /// `application/problem+json` on one line, with the exit status.
    pub(crate) fn to_json(&self) -> String {
        let word = match self.code {
            exit::USAGE => "invalid",
            exit::UNAVAILABLE => "agent_unavailable",
            exit::LOST => "hold_lost",
            exit::NOT_ACQUIRED => "contended",
            exit::FORBIDDEN => "forbidden",
            _ => "refused",
        };
        let local = || json!({"type": format!("urn:tenure:problem:{word}"), "code": word});
        let told = self.problem.as_ref().and_then(|problem| serde_json::to_value(problem).ok());
        let mut value = told.unwrap_or_else(local);
        value["detail"] = json!(self.line);
        value["exit_status"] = json!(self.code);
        value.to_string()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// The agent's words about a wrong field in those of the command line: `ttl_ms is 864000000` is
/// `--ttl is 10d`, and `300 to 86400000 ms` is `300ms to 1d`.
fn in_units(detail: &str) -> String {
    let mut words: Vec<String> = detail.split(' ').map(str::to_owned).collect();
    if words.first().is_some_and(|field| field == "pid") {
        "--for-pid".clone_into(&mut words[0]);
    }
    if let Some(option) = words.first().and_then(|field| field.strip_suffix("_ms")) {
        let option = if option == "keepalive" { "for" } else { option };
        words[0] = format!("--{}", option.replace('_', "-"));
        if let Some(value) = words.get(2).map(|value| value.trim_end_matches(';'))
            && let Ok(ms) = value.parse()
        {
            words[2] = format!("{};", brief(Duration::from_millis(ms)));
        }
    }
    let mut at = 0;
    while let Some(found) =
        words[at..].iter().position(|word| word.trim_end_matches([';', ',']) == "ms")
    {
        let unit = at + found;
        let end = words[unit][2..].to_owned();
        let number = |word: &str| word.parse().ok().map(|ms| brief(Duration::from_millis(ms)));
        if let Some(time) = unit.checked_sub(1).and_then(|before| number(&words[before])) {
            words[unit - 1] = time + &end;
            words.remove(unit);
            // `300 to 86400000 ms`
            if unit >= 3
                && words[unit - 2] == "to"
                && let Some(time) = number(&words[unit - 3])
            {
                words[unit - 3] = time;
            }
            at = unit;
        } else {
            at = unit + 1;
        }
    }
    let told = words.join(" ");
    if told.starts_with("--") { told.replace("choose a number", "choose a time") } else { told }
}

/// A holder in words.
pub(crate) struct Who<'a>(pub(crate) &'a Holder);

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { host, name, since_ms, token, pid, uid, .. } = self.0;
        // Other programs write them, too.
        let [host, name] = [host, name].map(|text| shown(text));
        // Every grant of an agent has a token.
        if *token == 0 {
            return write!(f, "a program without Tenure (no token; lock value {name})");
        }
        write!(f, "{name} on {host} (")?;
        if let Some(pid) = pid {
            write!(f, "pid {pid}, ")?;
        }
        if let Some(uid) = uid {
            write!(f, "uid {uid}, ")?;
        }
        match when::kept(self.0, when::now()) {
            Some(kept) => write!(f, "token {token}), {kept}"),
            None => write!(f, "token {token}, for {})", brief(Duration::from_millis(*since_ms))),
        }
    }
}

/// `1st`, `2nd`, `3rd`.
pub(crate) fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_refusal_looks_as_if_somebody_else_had_it() {
        let status = |code| {
            let problem = Box::new(Problem::new(code, "detail"));
            Failure::of_call("leader/a", &CallError::Refused(problem)).code
        };
        assert_eq!([Code::Contended, Code::WaitTimeout].map(status), [75; 2]);
        let away = [Code::UpstreamUnavailable, Code::Stopping, Code::SessionLost];
        assert_eq!(away.map(status), [69; 3]);
        assert_eq!([Code::QuotaExceeded, Code::HoldLost, Code::Forbidden].map(status), [1, 74, 77]);
    }

    #[test]
    fn a_contended_resource_names_its_holder_and_the_way_out() {
        let holder = Holder {
            host: "web-1".to_owned(),
            name: "nightly".to_owned(),
            since_ms: 61_000,
            token: 7,
            pid: Some(12),
            ..Holder::default()
        };
        let problem = Problem { holder: Some(holder), ..Problem::new(Code::Contended, "taken") };
        let error = CallError::Refused(Box::new(problem));
        let failure = Failure::of_call("leader/cleanup", &error);
        assert_eq!(failure.code, exit::NOT_ACQUIRED);
        assert_eq!(
            failure.to_string(),
            "leader/cleanup: taken by nightly on web-1 (pid 12, token 7, for 1m1s); \
             to wait for it leave out --no-wait"
        );
    }

    #[test]
    fn ordinals_are_english() {
        let all = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111].map(ordinal);
        assert_eq!(
            all,
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"]
        );
    }

    #[test]
    fn a_wrong_time_is_told_in_the_users_units() {
        let check = |said: &str, expected: &str| assert_eq!(in_units(said), expected);
        check(
            "ttl_ms is 864000000; the rule: ttl > 2 × beat with beat ≥ 100 ms, so 300 to 86400000 ms \
             here; choose a number in between, or leave it out for the default",
            "--ttl is 10d; the rule: ttl > 2 × beat with beat ≥ 100ms, so 300ms to 1d here; choose a \
             time in between, or leave it out for the default",
        );
        check(
            "max_hold_ms is 1; the rule: 100 to 86400000 ms; x",
            "--max-hold is 1ms; the rule: 100ms to 1d; x",
        );
        check("name is 'ms'; ms", "name is 'ms'; ms");
    }

    #[test]
    fn a_holder_of_another_program_is_called_so() {
        let foreign =
            Holder { host: "unknown".to_owned(), name: "a510b8bc".to_owned(), ..Holder::default() };
        let said = Who(&foreign).to_string();
        assert_eq!(said, "a program without Tenure (no token; lock value a510b8bc)");
    }
}

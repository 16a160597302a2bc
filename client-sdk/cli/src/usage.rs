//! A wrong command line, in one line.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use tenure::wire::Kind;

use crate::args::Cli;
use crate::shell::operand;

/// Longest part of a value that is repeated, letters.
const QUOTED_MAX: usize = 60;

/// What is wrong with a command line, and where to read on.
pub(crate) fn line(error: &clap::Error, words: &[String]) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = ["\n\nUsage:", "\n\nFor more information"].into_iter().filter_map(|it| text.find(it));
    let text = &text[..end.min().unwrap_or(text.len())];
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        let part = match part.strip_prefix("tip: ") {
            Some(tip) => format!("; {tip}"),
            None if line.is_empty() => part.to_owned(),
            None => format!(" {part}"),
        };
        line.push_str(&part);
    }
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && value.chars().count() > QUOTED_MAX
    {
        let quoted: String = value.chars().take(QUOTED_MAX).chain(['…']).collect();
        line = line.replace(value, &quoted);
    }
    let cli = Cli::command();
    let subcommand = words.iter().find(|word| cli.find_subcommand(word).is_some());
    let runs = matches!(subcommand.map(String::as_str), Some("run" | "lock"));
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
        && runs
        && !word.starts_with('-')
    {
        line.push_str(&format!("; write the command after two dashes: -- {word}"));
    }
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && let Some((kind, name)) = value.split_once('/')
        && kind.parse::<Kind>().is_ok()
        && !name.is_empty()
        && value.chars().count() <= QUOTED_MAX
    {
        line.push_str(&format!("; write kind and name as two words: {kind} {}", operand(name)));
    }
    let subcommand = subcommand.map(|name| format!(" {name}")).unwrap_or_default();
    format!("{line}; see `tenure{subcommand} --help`")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn kind_and_name_in_one_word_are_told_as_two() {
        for command in ["why", "history", "revoke", "standing", "observe"] {
            let words = ["tenure", command, "leader/nightly/eu"];
            let error = Cli::try_parse_from(words).expect_err("one word");
            let line = line(&error, &[command.to_owned()]);
            let hint = "; write kind and name as two words: leader nightly/eu; see `tenure";
            assert!(line.contains(hint), "{line}");
        }
    }
}

//! A wrong command line, in one line.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Cli;

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
    let subcommand = subcommand.map(|name| format!(" {name}")).unwrap_or_default();
    format!("{line}; see `tenure{subcommand} --help`")
}

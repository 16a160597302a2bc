//! A manual page of a command: what clap knows of it, and the sections that man(7) readers look for.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// What every command reads of its environment.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("TENURE_SOCKET", "The agent's socket, a path or a unix: URI, unless --socket names it."),
    ("XDG_RUNTIME_DIR", "Where the socket of an agent of your own is looked for first."),
    ("NO_COLOR", "Not empty: no colours."),
];
const FILES: [(&str, &str); 4] = [
    ("$XDG_RUNTIME_DIR/tenured/api.sock, /run/user/UID/tenured/api.sock", "Your own agent."),
    ("/tmp/tenured-UID/api.sock", "Your own agent where there is no runtime directory."),
    ("/run/tenured/api.sock", "The agent of the system."),
    ("/run/tenured/pages", "Until when each hold is valid, which programs read without a call."),
];
/// That of every command that does not name its own.
const EXIT_STATUS: [(&str, &str); 5] = [
    ("0", "Done."),
    ("1", "The agent refuses, or what was asked for is not there."),
    ("64", "The command line is wrong."),
    ("69", "The agent or its upstream cannot be reached."),
    ("77", "The agent's policy, or its upstream, forbids it."),
];

/// Headings of help texts that man(7) has other words for.
const HEADINGS: [(&str, &str); 2] =
    [("The command gets", "ENVIRONMENT OF THE COMMAND"), ("Life and death", "SIGNALS AND LOSSES")];

/// The page of `command`, whose parent is called `tenure` or which is that itself; `others` are the pages
/// to read next.
pub(super) fn page(command: &Command, others: &[String]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let help = command.get_after_long_help().or(command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let man = Man::new(command.clone().after_help(None).after_long_help(None)).manual("Tenure");
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]);
    synopsis.text([roman(usage.trim_start_matches("Usage:").trim())]);
    synopsis.to_writer(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    let mut rest = Roff::new();
    sections(&mut rest, &help);
    list(&mut rest, "ENVIRONMENT", &ENVIRONMENT);
    list(&mut rest, "FILES", &FILES);
    if !help.contains("Exit status:") {
        list(&mut rest, "EXIT STATUS", &EXIT_STATUS);
    }
    rest.control("SH", ["SEE ALSO"]).text([roman(others.join(", "))]);
    rest.to_writer(&mut out)?;
    Ok(out)
}

/// The sections of a help text: lines that end with a colon, and what is indented below them, which keeps
/// its lines.
fn sections(page: &mut Roff, help: &str) {
    let mut lines = help.lines().peekable();
    while let Some(line) = lines.next() {
        let heading = line.strip_suffix(':').filter(|line| !line.starts_with(' '));
        let Some(heading) = heading else {
            if !line.is_empty() {
                page.control("PP", []).text([roman(line)]);
                while let Some(more) = lines.next_if(|line| !line.is_empty()) {
                    page.text([roman(more)]);
                }
            }
            continue;
        };
        let other = HEADINGS.iter().find(|(ours, _)| *ours == heading);
        let title = other.map_or_else(|| heading.to_uppercase(), |(_, title)| (*title).to_owned());
        page.control("SH", [title.as_str()]).control("nf", []);
        while let Some(line) = lines.next_if(|line| line.is_empty() || line.starts_with(' ')) {
            page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        page.control("fi", []);
    }
}

fn list(page: &mut Roff, title: &str, items: &[(&str, &str)]) {
    page.control("SH", [title]);
    for (term, text) in items {
        page.control("TP", []).text([bold(*term)]).text([roman(*text)]);
    }
}

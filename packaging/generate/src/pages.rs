//! Manual pages: tenured(8) from its command line, tenured.toml(5) from the documentation of its keys.

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use tenure_service::config::{Entry, Section};

const MANUAL: &str = "Tenure";
const SOURCE: &str = concat!("Tenure ", env!("CARGO_PKG_VERSION"));

/// tenured(8).
///
/// # Errors
///
/// None in practice: it is written to memory.
pub(crate) fn tenured() -> anyhow::Result<String> {
    daemon(tenured::config::Cli::command(), &surroundings()).context("tenured(8)")
}

/// tenured-gateway(8).
///
/// # Errors
///
/// None in practice: it is written to memory.
pub(crate) fn gateway() -> anyhow::Result<String> {
    let command = tenure_gateway::settings::Cli::command();
    daemon(command, &gateway_surroundings()).context("tenured-gateway(8)")
}

fn daemon(command: Command, surroundings: &Roff) -> anyhow::Result<String> {
    let commands = commands(&command);
    // Told in sections of their own.
    let command = command.after_help(None);
    let man = Man::new(command).section("8").manual(MANUAL).source(SOURCE).date("");
    let mut page = Vec::new();
    man.render_title(&mut page)
        .and_then(|()| man.render_name_section(&mut page))
        .and_then(|()| man.render_synopsis_section(&mut page))
        .and_then(|()| man.render_description_section(&mut page))
        .and_then(|()| man.render_options_section(&mut page))
        .and_then(|()| commands.to_writer(&mut page))
        .and_then(|()| surroundings.to_writer(&mut page))?;
    Ok(String::from_utf8(page)?)
}

fn commands(command: &Command) -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["COMMANDS"]);
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        item(&mut page, vec![bold(command.get_name())], &about);
    }
    page
}

/// What the command line does not tell: signals, exit status, files, the service.
fn surroundings() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["SIGNALS"]);
    for (signal, does) in [
        ("SIGTERM, SIGINT", "Releases every hold, tells clients, and ends, within 5 s."),
        ("SIGUSR2", "Ends, and keeps every hold for the agent that is started next."),
        ("SIGHUP", "Reads the configuration again, and says in the log what changed."),
    ] {
        item(&mut page, vec![bold(signal)], does);
    }
    page.control("SH", ["EXIT STATUS"]);
    for (code, means) in [
        ("0", "It was stopped as asked."),
        ("64", "Wrong usage."),
        ("69", "The socket or a directory cannot be used."),
        ("78", "Wrong configuration."),
    ] {
        item(&mut page, vec![bold(code)], means);
    }
    page.control("SH", ["FILES"]);
    for (file, is) in [
        (
            "/etc/tenured/tenured.toml, /etc/tenured/conf.d/*.toml",
            "Configuration, tenured.toml(5).",
        ),
        ("/run/tenured/api.sock", "Where programs connect."),
        (
            "/run/tenured",
            "The journal and the pages. What restarts of the agent need, not reboots.",
        ),
        ("/var/lib/tenured", "What must survive a reboot: the high-water mark of tokens."),
        (
            "/etc/credstore/tenured.upstream-secret",
            "The upstream's password, where the service is run by systemd.",
        ),
    ] {
        item(&mut page, vec![italic(file)], is);
    }
    page.control("SH", ["SYSTEMD"]);
    for text in [
        "The package runs tenured as the user tenured. Members of the group tenured may use it: \
         adduser NAME tenured.",
        "systemctl restart tenured keeps every hold, and so do a crash and an upgrade of the \
         package. systemctl stop tenured releases them all; since tenured.socket still listens, \
         the next client starts the agent again, unless the socket is stopped too. systemctl \
         reload tenured checks the configuration first, and fails if it is wrong. A start with a \
         wrong one fails and is not tried again: mend it, then systemctl restart tenured.",
        "systemctl --user enable --now tenured runs an agent for one user, with its socket in \
         $XDG_RUNTIME_DIR/tenured.",
        "journalctl -u tenured -o verbose shows the fields of each line: TENURE_SESSION, \
         TENURE_HOLD, TENURE_TENANT, TENURE_KIND, TENURE_NAME, TENURE_TOKEN, TENURE_REASON, \
         TENURE_UID, TENURE_PID and TENURE_EXIT_STATUS.",
    ] {
        page.control("PP", []).text([roman(text)]);
    }
    see_also(&mut page, &["tenure(1)", "tenured.toml(5)", "systemctl(1)"]);
    page
}

/// What the command line of the gateway does not tell.
fn gateway_surroundings() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["SIGNALS"]);
    for (signal, does) in [
        (
            "SIGTERM, SIGINT",
            "Answers what was asked, and ends. What agents hold stays in the store.",
        ),
        ("SIGHUP", "Reads the configuration and the keys again, and says in the log what changed."),
    ] {
        item(&mut page, vec![bold(signal)], does);
    }
    page.control("SH", ["FILES"]);
    for (file, is) in [
        (
            "/etc/tenured-gateway/gateway.toml, /etc/tenured-gateway/conf.d/*.toml",
            "Configuration, tenured-gateway.toml(5).",
        ),
        ("/run/tenured-gateway, /var/lib/tenured-gateway", "What the embedded store keeps."),
        (
            "/etc/credstore/tenured-gateway.upstream-secret",
            "The store's password, where the service is run by systemd.",
        ),
    ] {
        item(&mut page, vec![italic(file)], is);
    }
    page.control("SH", ["ENDPOINTS"]);
    for (path, is) in [
        ("/healthz", "How it does, and what is wrong with the store."),
        (
            "/readyz",
            "200 while requests may be sent here, also when the store does not answer; 503 at a node that has not joined its cluster, or not caught up.",
        ),
        ("/metrics", "Numbers for Prometheus, for those who show a key."),
    ] {
        item(&mut page, vec![bold(path)], is);
    }
    see_also(&mut page, &["tenured(8)", "tenured-gateway.toml(5)", "systemctl(1)"]);
    page
}

/// tenured.toml(5).
pub(crate) fn tenured_toml(sections: &[Section]) -> String {
    let files = [
        "/etc/tenured/tenured.toml",
        "/etc/tenured/conf.d/*.toml",
        "$XDG_CONFIG_HOME/tenured/tenured.toml",
    ];
    let about = "configuration of the Tenure agent, tenured";
    configuration("tenured.toml", about, &files, sections, &["tenured(8)", "tenure(1)"])
}

/// tenured-gateway.toml(5).
pub(crate) fn gateway_toml(sections: &[Section]) -> String {
    let files = ["/etc/tenured-gateway/gateway.toml", "/etc/tenured-gateway/conf.d/*.toml"];
    let about = "configuration of the Tenure gateway, tenured-gateway";
    let see = ["tenured-gateway(8)", "tenured.toml(5)"];
    configuration("tenured-gateway.toml", about, &files, sections, &see)
}

fn configuration(
    name: &str,
    about: &str,
    files: &[&str],
    sections: &[Section],
    see: &[&str],
) -> String {
    let mut page = Roff::new();
    page.control("TH", [name, "5", "", SOURCE, MANUAL]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {about}"))]);
    page.control("SH", ["SYNOPSIS"]);
    for (at, file) in files.iter().enumerate() {
        page.text([italic(*file)]);
        if at + 1 < files.len() {
            page.control("br", []);
        }
    }
    for Section { header, about, keys } in sections {
        match header.as_str() {
            "" => page.control("SH", ["DESCRIPTION"]),
            header => page.control("SH", [header]),
        };
        paragraphs(&mut page, about.lines(), "PP");
        if header.is_empty() {
            page.control("SH", ["KEYS"]);
        }
        for key in keys {
            entry(&mut page, header.trim_matches(['[', ']']), key);
        }
    }
    see_also(&mut page, see);
    page.to_roff()
}

fn entry(page: &mut Roff, section: &str, Entry { name, value, is_default, about }: &Entry) {
    let dot = if section.is_empty() { "" } else { "." };
    let (relation, end) = if *is_default { (" = ", "") } else { (" (not set; such as ", ")") };
    page.control("TP", []);
    page.text([bold(format!("{section}{dot}{name}")), roman(relation), italic(value), roman(end)]);
    let mut about = about.lines();
    match about.next() {
        Some(first) => {
            page.text([roman(first)]);
        }
        // A tag without text would swallow the next one.
        None => {
            page.control("br", []);
        }
    }
    paragraphs(page, about, "IP");
}

/// Lines that begin with two blanks are printed as they are.
fn paragraphs<'a>(page: &mut Roff, lines: impl Iterator<Item = &'a str>, start: &'static str) {
    let mut is_verbatim = false;
    for line in lines {
        let was_verbatim = std::mem::replace(&mut is_verbatim, line.starts_with("  "));
        if was_verbatim && !is_verbatim {
            page.control("fi", []);
        }
        if !was_verbatim || !is_verbatim {
            page.control(start, []);
        }
        if is_verbatim && !was_verbatim {
            page.control("nf", []);
        }
        page.text([roman(line)]);
    }
    if is_verbatim {
        page.control("fi", []);
    }
}

fn item(page: &mut Roff, tag: Vec<Inline>, text: &str) {
    page.control("TP", []).text(tag).text([roman(text)]);
}

fn see_also(page: &mut Roff, pages: &[&str]) {
    page.control("SH", ["SEE ALSO"]).text([roman(pages.join(", "))]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_place() {
        let sections = tenured::config::manual();
        let page = tenured_toml(&sections);
        let keys: usize = sections.iter().map(|section| section.keys.len()).sum();
        assert!(keys > 50, "{keys}");
        assert_eq!(page.matches("\n.TP\n").count(), keys);
        for word in ["\\fBlimits.sessions_max\\fR", "\\fBallow.uid\\fR", ".SH [redis]"] {
            assert!(page.contains(word), "{word}");
        }
    }

    #[test]
    fn the_agents_page_tells_of_all_it_does() {
        let page = tenured().unwrap();
        for word in ["SIGUSR2", "check\\-config", "EXIT STATUS", "SEE ALSO", "\\-\\-state\\-dir"] {
            assert!(page.contains(word), "{word} is missing:\n{page}");
        }
        assert!(!page.contains("tenured\\-check\\-config"), "has no page of its own");
    }
}

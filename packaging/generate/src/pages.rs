//! Manual pages: tenured(8) from its command line, tenured.toml(5) from the documentation of its keys.

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use tenured::config::{Cli, Entry, Section};

const MANUAL: &str = "Tenure";
const SOURCE: &str = concat!("Tenure ", env!("CARGO_PKG_VERSION"));

/// tenured(8).
///
/// # Errors
///
/// None in practice: it is written to memory.
pub(crate) fn tenured() -> anyhow::Result<String> {
    let command = Cli::command();
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
        .and_then(|()| surroundings().to_writer(&mut page))
        .context("tenured(8)")?;
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

/// tenured.toml(5).
pub(crate) fn tenured_toml(sections: &[Section]) -> String {
    let mut page = Roff::new();
    page.control("TH", ["tenured.toml", "5", "", SOURCE, MANUAL]);
    page.control("SH", ["NAME"]);
    page.text([roman("tenured.toml - configuration of the Tenure agent, tenured")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([italic("/etc/tenured/tenured.toml")]).control("br", []);
    page.text([italic("/etc/tenured/conf.d/*.toml")]).control("br", []);
    page.text([italic("$XDG_CONFIG_HOME/tenured/tenured.toml")]);
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
    see_also(&mut page, &["tenured(8)", "tenure(1)"]);
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

//! The peer of a connection.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_wire::rules;

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

/// A program as people know it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The name of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Arc<str>>,
    /// Its command line, cut to [`COMMAND_BYTES_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Arc<str>>,
}

/// Most bytes of a command line that are kept.
pub const COMMAND_BYTES_MAX: usize = 256;

/// Programs that people know by the script that they run. A version counts as the same program: `python3.13`.
const INTERPRETERS: [&str; 14] = [
    "bash", "bun", "dash", "deno", "fish", "java", "node", "perl", "php", "python", "ruby", "sh",
    "uv", "zsh",
];
/// Options of interpreters whose value is the module or archive that is run.
const NAMING: [&str; 2] = ["-m", "-jar"];
/// Options of interpreters whose value may look like a script, and is none.
const LOADING: [&str; 4] = ["--import", "--loader", "--require", "--with"];

impl Program {
    /// The name that people know: that of the script, if an interpreter runs one, else that of the program.
    pub(crate) fn name(&self) -> Option<String> {
        let mut words = self.command.as_deref()?.split(' ');
        // A login shell is `-bash`, and some programs write a state behind `nginx:`.
        let program = base(words.next()?.trim_start_matches('-')).trim_end_matches(':');
        let version = |it: char| it.is_ascii_digit() || it == '.';
        let is_interpreter = INTERPRETERS.contains(&program.trim_end_matches(version));
        let script = if is_interpreter { script(words) } else { None };
        let name = script.unwrap_or(program);
        let is_plain = name.chars().all(|it| it.is_ascii_alphanumeric() || "._-+@".contains(it));
        (is_plain && rules::visible("name", name).is_ok()).then(|| name.to_owned())
    }

    pub(crate) fn is_unknown(&self) -> bool {
        *self == Program::default()
    }
}

/// How much a user may have, by the rules for it; `None` for what `[limits]` says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    pub sessions_max: Option<usize>,
    /// Holds, waiting ones counted.
    pub holds_max: Option<usize>,
}

/// The peer of a connection, by the kernel's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    /// The process that connected; `None` where it cannot be seen from here.
    pub process: Option<Process>,
    /// True if the shell can watch that process.
    pub watchable: bool,
    /// How much its user may have; filled in for requests that need more.
    pub quota: Quota,
}

/// The script, module or archive that an interpreter runs by these arguments, as far as the options above tell.
fn script<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    while let Some(word) = words.next() {
        if NAMING.contains(&word) {
            return words.next().map(base);
        }
        if LOADING.contains(&word) {
            words.next();
        } else if word.starts_with('-') && !word.starts_with("--") {
            // `-c`, `-lc`, `-e`, `-r`, `-p`, `-cp`: a text that is run, or a file that is loaded before the script.
            if word.contains(['c', 'e', 'p', 'r']) {
                return None;
            }
        } else if !word.starts_with('-') && word.contains(['/', '.']) {
            return Some(base(word));
        }
    }
    None
}

/// The last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_script_or_its_own_name() {
        for (command, name) in [
            ("/usr/bin/backup --all", Some("backup")),
            ("python3 /srv/report.py --day 3", Some("report.py")),
            ("/usr/bin/python3.13 -u -X dev report.py", Some("report.py")),
            ("node --enable-source-maps dist/server.js", Some("server.js")),
            ("deno run -A main.ts", Some("main.ts")),
            ("/bin/sh ./deploy.sh", Some("deploy.sh")),
            ("sh -c curl http://localhost/a.b", Some("sh")),
            ("bash -lc PW=a.b ./job", Some("bash")),
            ("node -r ./tracing.js app.js", Some("node")),
            ("node --require ./tracing.js app.js", Some("app.js")),
            ("python -m pytest tests/a.py", Some("pytest")),
            ("java -cp /opt/x/lib/* Main", Some("java")),
            ("java -jar /opt/app.jar", Some("app.jar")),
            ("python user:pw@db.example", None),
            ("-bash", Some("bash")),
            ("nginx: worker process", Some("nginx")),
            ("python3", Some("python3")),
            ("curl --unix-socket /run/tenured/api.sock http://localhost/", Some("curl")),
            ("/srv/", None),
            ("", None),
        ] {
            let program = Program { user: None, command: Some(command.into()) };
            assert_eq!(program.name().as_deref(), name, "{command}");
        }
        assert_eq!(Program::default().name(), None);
    }
}

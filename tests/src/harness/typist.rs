//! A person at a terminal: types into a shell, or another program, in a pseudo-terminal, and reads what it shows.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Program, binary, boottime_ns, eventually};

/// The key Ctrl-C.
pub const INTERRUPT: char = '\x03';
/// The key Ctrl-D.
pub const END: char = '\x04';
/// The key Ctrl-Z.
pub const SUSPEND: char = '\x1a';
/// The key Ctrl-\.
pub const QUIT: char = '\x1c';

/// Between two times that a shell is asked whether it listens.
const ASK_EVERY: Duration = Duration::from_millis(300);

/// An interactive shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Dash,
    Zsh,
    Fish,
}

impl Shell {
    pub const ALL: [Shell; 4] = [Shell::Bash, Shell::Dash, Shell::Zsh, Shell::Fish];

    fn line(self) -> &'static str {
        match self {
            Shell::Bash => "bash --norc --noprofile --noediting -i",
            Shell::Dash => "dash -i",
            Shell::Zsh => "zsh -f -i",
            Shell::Fish => "fish --no-config -i",
        }
    }
}

/// A person at a terminal, which hangs up when this is dropped.
pub struct Typist {
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
    /// The part of the screen that was read, in bytes.
    read: usize,
    asked: u32,
    program: Program,
}

impl Typist {
    /// In front of a shell, in a folder. `tenure` is on its path.
    #[track_caller]
    pub fn at(shell: Shell, folder: &Path, socket: &Path) -> Typist {
        let mut typist = Typist::before(shell.line(), folder, socket);
        typist.shell_listens();
        typist
    }

    /// In front of a program that has a terminal and no shell around it.
    #[track_caller]
    pub fn before(line: &str, folder: &Path, socket: &Path) -> Typist {
        let programs = binary("tenure").parent().expect("a directory").to_owned();
        let path = std::env::var("PATH").expect("a search path");
        let mut command = Command::new("script");
        // `script` starts its command by a shell, which is to be gone.
        command.args(["-qec", &format!("exec {line}"), "/dev/null"]).current_dir(folder);
        command.env("PATH", format!("{}:{path}", programs.display())).env("HOME", folder);
        command
            .env("TENURE_SOCKET", socket)
            .env("TERM", "dumb")
            .env("LC_ALL", "C.UTF-8")
            .env("PS1", "$ ")
            .env("SHELL", "/bin/sh");
        let mut program = Program::start(
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()),
        );
        let pipes = program.pipes();
        let keys = pipes.stdin.take().expect("standard input is piped");
        let mut screen = pipes.stdout.take().expect("standard output is piped");
        let shown = Arc::new(Mutex::new(String::new()));
        let all = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut part) {
                let text = String::from_utf8_lossy(&part[..count]).replace('\r', "");
                all.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        Typist { keys, shown, read: 0, asked: 0, program }
    }

    /// Presses one key.
    pub fn press(&mut self, key: char) {
        // A program that has ended reads no keys.
        let _ended = write!(self.keys, "{key}").and_then(|()| self.keys.flush());
    }

    /// Types a line.
    pub fn line(&mut self, text: &str) {
        let _ended = writeln!(self.keys, "{text}").and_then(|()| self.keys.flush());
    }

    /// All that was shown.
    pub fn screen(&self) -> String {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until this is shown, after what was waited for before.
    #[track_caller]
    pub fn sees(&mut self, text: &str) {
        let found = self.look(text, None);
        self.read = found.unwrap_or_else(|| panic!("{text:?} is not shown: {}", self.screen()));
    }

    /// Types a line until it is answered: a shell may drop what is typed while it gives away the terminal.
    #[track_caller]
    pub fn says(&mut self, line: &str, answer: &str) {
        self.read = eventually(&format!("{answer:?} on the screen"), || {
            self.line(line);
            self.look(answer, Some(ASK_EVERY))
        });
    }

    /// Waits until the shell carries out commands.
    #[track_caller]
    pub fn shell_listens(&mut self) {
        let give_up = boottime_ns() + u64::try_from(super::DEADLINE.as_nanos()).unwrap_or(u64::MAX);
        let found = loop {
            self.asked += 1;
            // What is typed does not have the word that is waited for.
            self.line(&format!("printf 'listens-%s\\n' {}", self.asked));
            if let Some(found) = self.look(&format!("listens-{}\n", self.asked), Some(ASK_EVERY)) {
                break found;
            }
            assert!(boottime_ns() < give_up, "the shell does not listen: {}", self.screen());
        };
        self.read = found;
    }

    /// The end of a text on the screen; waits for it, for so long.
    fn look(&self, text: &str, within: Option<Duration>) -> Option<usize> {
        let within = within.unwrap_or(super::DEADLINE);
        let give_up = boottime_ns() + u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        loop {
            let screen = self.screen();
            if let Some(at) = screen[self.read..].find(text) {
                return Some(self.read + at + text.len());
            }
            if boottime_ns() > give_up {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end of the program, and returns its exit code as a shell would.
    #[track_caller]
    pub fn end(&mut self) -> i32 {
        self.program.wait_code()
    }
}

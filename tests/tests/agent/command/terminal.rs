//! A command under `tenure lock` on a terminal: each row is done in each shell without a wrapper, under flock(1) and under
//! `tenure lock`, and shows the same each time.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getpgid, mkfifo};
use tempfile::TempDir;
use tenure_tests::harness::{
    Agent, Client, END, INTERRUPT, Program, QUIT, SUSPEND, Shell, TenureRun, Typist, binary,
    eventually, read_pid, read_when_there, until,
};

/// A loop whose first command goes on until a key ends it.
const LOOP: &str = "for i in 1 2 3; do printf 'turn-%s\\n' $i; {} sh -c 'printf \"began-%s\\n\" 1; exec sleep 1000'; done; \
                    printf 'after-%s\\n' 1";
const LOOP_OF_FISH: &str = "for i in 1 2 3; printf 'turn-%s\\n' $i; {} sh -c 'printf \"began-%s\\n\" 1; exec sleep 1000'; end; \
                            printf 'after-%s\\n' 1";
/// As sudo, ssh and gpg ask.
const ASK: &str =
    "sh -c 'printf \"asks-%s\\n\" 1 >/dev/tty; read a </dev/tty; printf \"got-%s\\n\" $a; wc -c'";

enum Step {
    /// Types a line, with the wrapper in place of `{}`.
    Line(&'static str),
    Press(char),
    Sees(&'static str),
    /// Says this to the command until it answers.
    Says(&'static str),
    /// Fetches the command to the foreground and says this to it, until it answers: one that reads just then stops afterwards.
    Fetches(&'static str),
    Listens,
}
use Step::{Fetches, Line, Listens, Press, Says, Sees};

pub(super) struct Row {
    what: &'static str,
    steps: &'static [Step],
    /// What may be on the screen at the end, and whether it is to be.
    marks: &'static [(&'static str, bool)],
    /// flock(1) does the same.
    as_flock: bool,
}

/// The ends of loops, of which the table of ends has a line.
pub(super) const LOOPS: [Row; 3] = [
    Row {
        what: "Ctrl-C ends a loop at the prompt",
        steps: &[Line(LOOP), Sees("began-1\n"), Press(INTERRUPT), Listens],
        marks: &[("turn-1", true), ("turn-2", false)],
        as_flock: true,
    },
    Row {
        what: "Ctrl-C ends a script",
        steps: &[Line("bash loop.sh"), Sees("began-1\n"), Press(INTERRUPT), Listens],
        marks: &[("turn-1", true), ("turn-2", false), ("after-1", false)],
        as_flock: true,
    },
    Row {
        what: "Ctrl-C ends a script of dash",
        steps: &[Line("dash loop.sh"), Sees("began-1\n"), Press(INTERRUPT), Listens],
        marks: &[("turn-1", true), ("turn-2", false), ("after-1", false)],
        as_flock: true,
    },
];

const ROWS: [Row; 11] = [
    Row {
        what: "Ctrl-C that the command takes is no end of a script",
        steps: &[
            Line("bash takes.sh"),
            Sees("began-1\n"),
            Press(INTERRUPT),
            Sees("after-1\n"),
            Listens,
        ],
        marks: &[("took-1\n", true), ("took-1\ntook-1", false)],
        // flock dies of it before its command, and the script then, too.
        as_flock: false,
    },
    Row {
        what: "Ctrl-\\ ends the command",
        steps: &[
            Line("{} sh -c 'printf \"began-%s\\n\" 1; exec sleep 1000'"),
            Sees("began-1\n"),
            Press(QUIT),
            Listens,
        ],
        marks: &[("began-1", true)],
        as_flock: true,
    },
    Row {
        what: "Ctrl-Z stops both, and fg goes on",
        steps: &[
            Line("{} sh talk.sh"),
            Sees("began-1\n"),
            Says("one"),
            Press(SUSPEND),
            Listens,
            Line("fg"),
            Says("two"),
            Press(END),
            Listens,
        ],
        marks: &[],
        as_flock: true,
    },
    Row {
        what: "after Ctrl-Z it goes on in the background",
        steps: &[
            Line("{} sh wait.sh"),
            Sees("began-1\n"),
            Press(SUSPEND),
            Listens,
            Line("bg"),
            Listens,
            Line("echo >go"),
            Sees("end-1\n"),
            Listens,
        ],
        marks: &[],
        as_flock: true,
    },
    Row {
        what: "a command that stops its own group, and fg",
        steps: &[
            Line("{} sh stops.sh"),
            Sees("began-1\n"),
            Listens,
            Line("fg"),
            Says("one"),
            Press(END),
            Listens,
        ],
        marks: &[],
        as_flock: true,
    },
    Row {
        what: "from the background to the foreground",
        steps: &[Line("{} sh talk.sh &"), Listens, Fetches("one"), Press(END), Listens],
        marks: &[],
        as_flock: true,
    },
    Row {
        what: "a question at the terminal, data from a pipe",
        steps: &[
            Line(PIPE_TO_ASK),
            Sees("asks-1\n"),
            Line("secret"),
            Sees("got-secret\n5\n"),
            Listens,
        ],
        marks: &[],
        as_flock: true,
    },
    Row {
        what: "a question at the terminal, data from a file",
        steps: &[
            Line(FILE_TO_ASK),
            Sees("asks-1\n"),
            Line("secret"),
            Sees("got-secret\n5\n"),
            Listens,
        ],
        marks: &[],
        as_flock: true,
    },
    Row {
        what: "input from the terminal, output to a pipe",
        steps: &[
            Line("{} sh -c 'printf \"asks-%s\\n\" 1; read a; printf \"got-%s\\n\" $a' | cat"),
            Sees("asks-1\n"),
            Line("answer"),
            Sees("got-answer\n"),
            Listens,
        ],
        marks: &[],
        as_flock: true,
    },
    Row {
        what: "errors to a file",
        steps: &[
            Line("{} sh -c 'printf \"asks-%s\\n\" 1; read a; printf \"got-%s\\n\" $a' 2>errors"),
            Sees("asks-1\n"),
            Line("answer"),
            Sees("got-answer\n"),
            Listens,
        ],
        marks: &[],
        as_flock: true,
    },
    Row {
        what: "a shell under the lock, with jobs of its own",
        steps: &[
            Line("{} bash --norc --noprofile --noediting -i"),
            Listens,
            Line("sh talk.sh"),
            Sees("began-1\n"),
            Says("one"),
            Press(SUSPEND),
            Listens,
            Line("fg"),
            Says("two"),
            Press(INTERRUPT),
            Listens,
            Line("exit"),
            Listens,
        ],
        marks: &[],
        as_flock: true,
    },
];
const PIPE_TO_ASK: &str = "printf abcde | {} sh ask.sh";
const FILE_TO_ASK: &str = "{} sh ask.sh <five";

fn folder(wrapper: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text.replace("{}", wrapper)).expect("it is ours");
    };
    write("loop.sh", LOOP);
    write(
        "takes.sh",
        "{} sh -c 'trap \"printf took-1; echo; exit 0\" INT; until grep -q State:.S /proc/$PPID/status; do :; done; printf \"began-%s\\n\" 1; while :; do sleep 0.05; done'\n\
         printf 'after-%s\\n' 1\n",
    );
    write("ask.sh", &format!("{ASK}\n").replace("sh -c ", "exec sh -c "));
    write("stops.sh", "printf 'began-%s\\n' 1; kill -TSTP 0; exec sh talk.sh\n");
    write(
        "talk.sh",
        "printf 'began-%s\\n' 1; while read a; do printf 'heard-%s\\n' \"$a\"; done\n",
    );
    write("wait.sh", "exec 3<>go; printf 'began-%s\\n' 1; read a <&3; printf 'end-%s\\n' 1\n");
    // dash starts programs by vfork(2), and does not stop while its child is stopped before it has executed one. So the
    // scripts that Ctrl-Z is to stop wait by builtins of the shell.
    mkfifo(&folder.path().join("go"), Mode::S_IRWXU).expect("it is ours");
    write("five", "abcde");
    folder
}

/// What is on the screen after a row.
fn shows(row: &Row, shell: Shell, wrapper: &str, socket: &Path) -> Vec<bool> {
    let folder = folder(wrapper);
    let mut typist = Typist::at(shell, folder.path(), socket);
    for step in row.steps {
        match step {
            Line(LOOP) if shell == Shell::Fish => typist.line(&LOOP_OF_FISH.replace("{}", wrapper)),
            Line(line) => typist.line(&line.replace("{}", wrapper)),
            Press(key) => typist.press(*key),
            Sees(text) => typist.sees(text),
            Says(word) => typist.says(word, &format!("heard-{word}\n")),
            Fetches(word) => typist.says(&format!("fg\n{word}"), &format!("heard-{word}\n")),
            Listens => typist.shell_listens(),
        }
    }
    let screen = typist.screen();
    row.marks.iter().map(|(mark, _)| screen.contains(mark)).collect()
}

#[track_caller]
pub(super) fn check(shell: Shell, rows: &[Row]) {
    let agent = Agent::start();
    for row in rows {
        let expected: Vec<bool> = row.marks.iter().map(|(_, is_there)| *is_there).collect();
        let wrappers = ["env", "flock lock", "tenure lock x --"];
        for wrapper in wrappers.into_iter().filter(|it| row.as_flock || !it.starts_with("flock")) {
            let shown = shows(row, shell, wrapper, &agent.socket());
            println!("{shell:?}: {}: {wrapper}: {shown:?}", row.what);
            assert_eq!(shown, expected, "{shell:?}: {}: {wrapper}", row.what);
        }
        until("the lock to be free", || agent.counts() == (0, 0, 0));
    }
}

#[test]
fn in_bash_it_is_as_without_a_wrapper() {
    check(Shell::Bash, &ROWS);
}

#[test]
fn in_dash_it_is_as_without_a_wrapper() {
    check(Shell::Dash, &ROWS);
}

#[test]
fn in_zsh_it_is_as_without_a_wrapper() {
    check(Shell::Zsh, &ROWS);
}

#[test]
fn in_fish_it_is_as_without_a_wrapper() {
    check(Shell::Fish, &ROWS);
}

#[test]
fn on_a_terminal_without_a_shell_keys_reach_the_command() {
    let agent = Agent::start();
    let folder = folder("tenure lock x --");
    for (key, signal) in [(INTERRUPT, Signal::SIGINT), (QUIT, Signal::SIGQUIT)] {
        let line = "tenure lock x -- sh -c 'printf \"began-%s\\n\" 1; exec sleep 1000'";
        let mut typist = Typist::before(line, folder.path(), &agent.socket());
        typist.sees("began-1\n");
        typist.press(key);
        assert_eq!(typist.end(), 128 + signal as i32);
        until("the lock to be free", || agent.counts() == (0, 0, 0));
    }
    // Nobody could have it go on.
    let line = "tenure lock x -- sh -c 'printf \"began-%s\\n\" 1; exec cat'";
    let mut typist = Typist::before(line, folder.path(), &agent.socket());
    typist.sees("began-1\n");
    typist.press(SUSPEND);
    typist.line("one");
    typist.sees("one\none\n");
    typist.press(END);
    assert_eq!(typist.end(), 0);
}

#[test]
fn without_a_terminal_the_command_has_a_group_of_its_own() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pid = folder.path().join("pid");
    let mut command = Command::new("setsid");
    command.arg(binary("tenure")).args(["lock", "x", "--", "sh", "-c"]);
    command.arg(format!("echo $$ >{}; exec sleep 1000", pid.display()));
    command.env("TENURE_SOCKET", agent.socket()).stdin(Stdio::null());
    let mut run = Program::start(&mut command);
    let child = read_pid(&pid);
    assert_eq!(getpgid(Some(child)), Ok(child));
    run.signal(Signal::SIGINT);
    assert_eq!(run.wait_code(), 128 + 2);
}

#[test]
fn a_signal_of_a_script_to_the_wrapper_reaches_all_of_the_command() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = "tenure lock x -- sh -c 'sleep 1000 & echo $! >inner; wait' & \
                  until [ -s inner ]; do sleep 0.05; done; kill -TERM $!; wait $!; printf 'status-%s\\n' $?";
    fs::write(folder.path().join("script.sh"), script).expect("it is ours");
    let mut typist = Typist::at(Shell::Bash, folder.path(), &agent.socket());
    typist.line("bash script.sh");
    typist.sees("status-143\n");
    until("the lock to be free", || agent.counts() == (0, 0, 0));
}

#[test]
fn a_lost_hold_ends_all_that_was_started_on_a_terminal() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut typist = Typist::at(Shell::Bash, folder.path(), &agent.socket());
    typist.line(
        "tenure lock x --kill-after 200ms -- sh -c 'trap \"\" TERM; setsid sleep 1000 & first=$!; sleep 1000 & echo $$ $first $! >pids; \
         printf \"began-%s\\n\" 1; wait; sleep 1000'; printf 'status-%s\\n' $?",
    );
    typist.sees("began-1\n");
    let pids = read_when_there(&folder.path().join("pids"));
    agent.http().post("/v1/revoke", &serde_json::json!({"kind": "leader", "name": "x"})).json(200);
    typist.sees("status-74\n");
    for pid in pids.split_whitespace() {
        let pid = Pid::from_raw(pid.parse().expect("a process id"));
        until("its end", || kill(pid, None).is_err());
    }
    // The shell is not touched.
    typist.shell_listens();
}

#[test]
fn children_of_the_shell_before_are_none_of_the_command() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut typist = Typist::at(Shell::Bash, folder.path(), &agent.socket());
    // bash starts `tee` as a child of the process that becomes tenure.
    typist.line(
        "tenure lock x --kill-after 1m -- sh -c 'trap \"sleep 0.2; echo cleaned; exit 3\" TERM; \
         printf \"began-%s\\n\" 1; while :; do sleep 0.05; done' > >(exec tee log); printf 'status-%s\\n' $?",
    );
    typist.sees("began-1\n");
    agent.http().post("/v1/revoke", &serde_json::json!({"kind": "leader", "name": "x"})).json(200);
    typist.sees("status-74\n");
    // The wrapper does not wait for `tee`.
    let log = folder.path().join("log");
    until("its last words", || fs::read_to_string(&log).is_ok_and(|it| it == "began-1\ncleaned\n"));
}

#[test]
fn an_interrupt_after_the_command_has_ended_is_not_swallowed() {
    let agent = Agent::start();
    // The agent stands still, so that the end of the hold takes a while.
    let script = format!("kill -STOP {}", agent.pid());
    eventually("an interrupt before the wrapper has ended", || {
        let mut run =
            TenureRun::new(&agent.socket(), &["--leader", "x"], &["sh", "-c", &script]).start();
        let children = format!("/proc/{0}/task/{0}/children", run.pid());
        let has_child = || fs::read_to_string(&children).is_ok_and(|it| !it.trim().is_empty());
        until("the command", || has_child() || run.ended().is_some());
        until("the command's end", || !has_child());
        run.signal(Signal::SIGINT);
        let code = run.wait_code();
        kill(Pid::from_raw(i32::try_from(agent.pid()).expect("a process id")), Signal::SIGCONT)
            .expect("it is there");
        (code == 128 + 2).then_some(())
    });
}

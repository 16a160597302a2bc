//! Each line of the page's table of signals has trials here: a signal goes to the wrapper while it waits for the hold, and
//! while the command runs, and the page says what comes of it. Lines about terminals name the tests that have one.

mod scene;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal::{
    self, SIGABRT, SIGALRM, SIGBUS, SIGCONT, SIGFPE, SIGHUP, SIGINT, SIGIO, SIGKILL, SIGPIPE,
    SIGPROF, SIGPWR, SIGQUIT, SIGSEGV, SIGSTOP, SIGSYS, SIGTERM, SIGTRAP, SIGTSTP, SIGTTIN,
    SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU, SIGXFSZ,
};
use serde_json::json;
use tempfile::TempDir;
use tenure_tests::harness::{Agent, Campaigner, INTERRUPT, QUIT, Typist, until};

use super::page;
use scene::{NAME, Scene, end_listener, lines, listener, program};

/// A line of the table.
struct Line {
    /// Its first cell.
    page: &'static str,
    /// The beginning of its second cell.
    waiting: &'static str,
    /// The beginning of its third cell.
    running: &'static str,
    proof: Proof,
}

enum Proof {
    Trials(&'static [Trial]),
    /// Tests that have a terminal, with their file in this folder.
    Elsewhere(&'static [(&'static str, &'static str)]),
}
use Proof::{Elsewhere, Trials};

/// What comes of some signals.
struct Trial {
    signals: &'static [Signal],
    waiting: &'static [Waiting],
    running: &'static [Running],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// It dies by the signal, and leaves no place in the queue.
    Dies,
    /// It goes on, and keeps its place.
    GoesOn,
    /// It stops, and keeps its place.
    Stops,
    /// It goes on in spite of a stop.
    IsContinued,
    /// It goes on, where the signal was ignored at its start.
    Ignores,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    /// The command hears it once, and takes it. The wrapper goes on.
    PassesOn,
    /// Both stop, and keep the hold, where the command does not take the signal of the wrapper.
    BothStop,
    /// The same where the command alone is signalled.
    BothStopByCommand,
    /// The command alone stops when it is signalled. The wrapper goes on.
    CommandStops,
    /// The wrapper alone stops. The command keeps the hold.
    WrapperStops,
    /// The command hears nothing. The wrapper goes on.
    Nothing,
    /// The wrapper dies by it. The command hears nothing, and keeps the hold.
    Dies,
    /// The command hears nothing, where the signal was ignored at the start. Both ignore it.
    Ignores,
    /// It was ignored at the start. The wrapper goes on, and the command does not ignore it.
    OfCommandIsDefault,
}

const LINES: [Line; 14] = [
    Line {
        page: "SIGINT, SIGQUIT of the terminal (Ctrl-C, Ctrl-\\\\)",
        waiting: "the wait ends, no place in the queue is left; the wrapper dies by the signal",
        running: "the terminal tells the command itself",
        proof: Elsewhere(&[
            ("terminal.rs", "on_a_terminal_without_a_shell_keys_reach_the_command"),
            ("signals/mod.rs", "a_key_ends_a_wait_and_a_hang_up_ends_both"),
        ]),
    },
    Line {
        page: "SIGTERM, SIGINT, SIGQUIT, SIGHUP of a process",
        waiting: "the wait ends",
        running: "passed on to the command's processes",
        proof: Trials(&[Trial {
            signals: &[SIGTERM, SIGINT, SIGQUIT, SIGHUP],
            waiting: &[Waiting::Dies],
            running: &[Running::PassesOn],
        }]),
    },
    Line {
        page: "SIGHUP of the terminal that hangs up",
        waiting: "the wait ends",
        running: "the command hears of it as it would alone",
        proof: Elsewhere(&[("signals/mod.rs", "a_key_ends_a_wait_and_a_hang_up_ends_both")]),
    },
    Line {
        page: "SIGUSR1, SIGUSR2, SIGWINCH of a process",
        waiting: "nothing",
        running: "passed on",
        proof: Trials(&[Trial {
            signals: &[SIGUSR1, SIGUSR2, SIGWINCH],
            waiting: &[Waiting::GoesOn],
            running: &[Running::PassesOn],
        }]),
    },
    Line {
        page: "SIGTSTP (Ctrl-Z)",
        waiting: "the wrapper stops; it keeps its place in the queue",
        running: "the command stops, and then the wrapper by the same signal. The hold stays",
        proof: Trials(&[Trial {
            signals: &[SIGTSTP],
            waiting: &[Waiting::Stops],
            running: &[Running::BothStop, Running::BothStopByCommand, Running::PassesOn],
        }]),
    },
    Line {
        page: "SIGTTIN, SIGTTOU",
        waiting: "nothing",
        running: "as SIGTSTP, when the command reads or writes from the background",
        proof: Trials(&[Trial {
            signals: &[SIGTTIN, SIGTTOU],
            waiting: &[Waiting::GoesOn],
            running: &[Running::BothStopByCommand, Running::Nothing],
        }]),
    },
    Line {
        page: "SIGCONT",
        waiting: "it goes on",
        running: "passed on",
        proof: Trials(&[Trial {
            signals: &[SIGCONT],
            waiting: &[Waiting::GoesOn, Waiting::IsContinued],
            running: &[Running::PassesOn],
        }]),
    },
    Line {
        page: "SIGSTOP to the command alone",
        waiting: "",
        running: "On a terminal's foreground the wrapper stops, too. Elsewhere it goes on.",
        proof: Trials(&[Trial {
            signals: &[SIGSTOP],
            waiting: &[],
            running: &[Running::CommandStops],
        }]),
    },
    Line {
        page: "SIGSTOP, SIGKILL to the wrapper",
        waiting: "the place in the queue goes to the next when its connection ends",
        running: "Nobody ends the command at a loss. With `--tether tree`, the default, it keeps the hold",
        proof: Trials(&[
            Trial {
                signals: &[SIGSTOP],
                waiting: &[Waiting::Stops],
                running: &[Running::WrapperStops],
            },
            Trial { signals: &[SIGKILL], waiting: &[Waiting::Dies], running: &[Running::Dies] },
        ]),
    },
    Line {
        page: "one that was ignored when the wrapper started (`nohup`, `&` in a script)",
        waiting: "ignored",
        running: "ignored by both, but for SIGPIPE, which has its default action in the command",
        proof: Trials(&[
            Trial {
                signals: &[
                    SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGALRM,
                    SIGXCPU,
                ],
                waiting: &[Waiting::Ignores],
                running: &[Running::Ignores],
            },
            Trial {
                signals: &[SIGPIPE],
                waiting: &[Waiting::Ignores],
                running: &[Running::OfCommandIsDefault],
            },
        ]),
    },
    Line {
        page: "SIGINT, SIGQUIT after the command's end",
        waiting: "",
        running: "the wrapper dies by it, while it gives the hold back, too",
        proof: Elsewhere(&[(
            "terminal.rs",
            "an_interrupt_after_the_command_has_ended_is_not_swallowed",
        )]),
    },
    Line {
        page: "SIGPIPE",
        waiting: "nothing",
        running: "nothing: the wrapper does not end",
        proof: Trials(&[Trial {
            signals: &[SIGPIPE],
            waiting: &[Waiting::GoesOn],
            running: &[Running::Nothing],
        }]),
    },
    Line {
        page: "SIGSEGV, SIGBUS of a process",
        waiting: "the first one nothing",
        running: "the first one nothing",
        proof: Trials(&[Trial {
            signals: &[SIGSEGV, SIGBUS],
            waiting: &[Waiting::GoesOn],
            running: &[Running::Nothing],
        }]),
    },
    Line {
        page: "any other",
        waiting: "its default action",
        running: "its default action: the command goes on, and keeps the hold",
        proof: Trials(&[
            Trial {
                signals: &[
                    SIGALRM, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF, SIGABRT, SIGTRAP, SIGSYS, SIGIO,
                    SIGPWR, SIGFPE,
                ],
                waiting: &[Waiting::Dies],
                running: &[Running::Dies],
            },
            Trial { signals: &[SIGURG], waiting: &[Waiting::GoesOn], running: &[Running::Nothing] },
        ]),
    },
];

/// The signals that a text names.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| word.len() > 3 && word.starts_with("SIG")).collect()
}

#[test]
fn each_line_of_the_page_has_a_proof_and_says_what_is_proved() {
    let cells = |Line { page, waiting, running, .. }: &Line| [*page, *waiting, *running];
    page::check("Signals", &LINES.each_ref().map(cells));
    for Line { page, proof, .. } in &LINES {
        match proof {
            Trials(trials) => {
                let tried = trials.iter().flat_map(|trial| trial.signals);
                let tried: BTreeSet<_> = tried.map(|signal| signal.as_str()).collect();
                assert!(named(page).is_empty() || named(page) == tried, "{page}: {tried:?}");
            }
            Elsewhere(tests) => {
                for (file, name) in *tests {
                    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent/command");
                    let text = fs::read_to_string(folder.join(file)).expect("the file is there");
                    let test = format!("#[test]\nfn {name}() {{");
                    assert!(text.contains(&test), "{page}: {file} has no test {name}");
                }
            }
        }
    }
}

/// Some signal that the wrapper passes on, and another one than this.
fn barrier(signal: Signal) -> Signal {
    if signal == SIGUSR2 { SIGUSR1 } else { SIGUSR2 }
}

fn try_waiting(agent: &Agent, signal: Signal, outcome: Waiting) {
    let ignored = (outcome == Waiting::Ignores).then_some(signal);
    let mut scene = Scene::waiting(agent, ignored);
    if outcome == Waiting::IsContinued {
        scene.signal(SIGSTOP);
        scene.wrapper_stops();
    }
    scene.signal(signal);
    match outcome {
        Waiting::Dies => {
            scene.wrapper_died_by(signal);
            scene.leaves_no_place();
            return scene.nothing_is_left();
        }
        Waiting::GoesOn | Waiting::Ignores | Waiting::IsContinued => scene.is_taken(signal),
        Waiting::Stops => {
            scene.wrapper_stops();
            scene.resume();
        }
    }
    scene.gets_the_hold();
    assert_eq!(scene.heard(barrier(signal)), [""; 0], "nothing of the wait reaches the command");
    scene.ends();
}

fn try_running(agent: &Agent, signal: Signal, outcome: Running) {
    let is_ignored = matches!(outcome, Running::Ignores | Running::OfCommandIsDefault);
    let ignored = is_ignored.then_some(signal);
    let is_default = matches!(outcome, Running::BothStop | Running::BothStopByCommand);
    let scene = Scene::running(agent, ignored, is_default.then_some(signal));
    let by_command = matches!(outcome, Running::BothStopByCommand | Running::CommandStops);
    if by_command {
        scene.signal_command(signal);
    } else {
        scene.signal(signal);
    }
    let mut expected = Vec::new();
    match outcome {
        Running::PassesOn => {
            scene.hears(signal);
            expected.push(signal.as_str());
        }
        Running::BothStop | Running::BothStopByCommand => {
            scene.command_stops();
            scene.wrapper_stops();
            scene.is_held();
            scene.resume();
            expected.push("SIGCONT");
        }
        Running::CommandStops => {
            scene.command_stops();
            scene.is_held();
            scene.signal_command(SIGCONT);
            expected.push("SIGCONT");
        }
        Running::WrapperStops => {
            scene.wrapper_stops();
            scene.is_held();
            assert_eq!(scene.heard_so_far(), [""; 0]);
            scene.resume();
            expected.push("SIGCONT");
        }
        Running::Dies => {
            scene.wrapper_died_by(signal);
            scene.is_held();
            assert_eq!(scene.heard_so_far(), [""; 0]);
            return scene.command_ends();
        }
        Running::Nothing => scene.is_taken(signal),
        Running::Ignores => assert_eq!(scene.ignores(signal), [true; 2]),
        Running::OfCommandIsDefault => assert_eq!(scene.ignores(signal), [true, false]),
    }
    if expected == ["SIGCONT"] {
        scene.hears(SIGCONT);
    }
    assert_eq!(scene.heard(barrier(signal)), expected);
    scene.is_held();
    scene.ends();
}

/// Tries each line of trials, and each signal of the trials, at one of two times.
fn try_all(tries: impl Fn(&Agent, &Trial, Signal)) {
    let agent = Agent::start();
    for line in &LINES {
        let Trials(trials) = &line.proof else { continue };
        for trial in *trials {
            for signal in trial.signals {
                eprintln!("{}: {signal}", line.page);
                tries(&agent, trial, *signal);
            }
        }
    }
}

#[test]
fn while_the_wrapper_waits_each_signal_does_what_the_page_says() {
    try_all(|agent, trial, signal| {
        trial.waiting.iter().for_each(|outcome| try_waiting(agent, signal, *outcome));
    });
}

#[test]
fn while_the_command_runs_each_signal_does_what_the_page_says() {
    try_all(|agent, trial, signal| {
        trial.running.iter().for_each(|outcome| {
            eprintln!("{outcome:?}");
            try_running(agent, signal, *outcome);
        });
    });
}

/// A terminal, in front of the wrapper and a command that listens, and the file of what that hears.
fn typist(folder: &TempDir, agent: &Agent) -> (Typist, PathBuf) {
    let heard = folder.path().join("heard");
    let listener = program("listener.py");
    let line = format!("tenure lock {NAME} -- python3 {} {}", listener.display(), heard.display());
    (Typist::before(&line, folder.path(), &agent.socket()), heard)
}

#[test]
fn a_key_ends_a_wait_and_a_hang_up_ends_both() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut holder = Campaigner::start(&agent, "holder");
    let held = holder.acquire("leader", NAME, &json!({})).hold;
    let waiting = || {
        let (typist, _) = typist(&folder, &agent);
        until("the wrapper to wait", || agent.counts().2 == 1);
        typist
    };
    for (key, signal) in [(INTERRUPT, SIGINT), (QUIT, SIGQUIT)] {
        let mut typist = waiting();
        typist.press(key);
        assert_eq!(typist.end(), 128 + signal as i32);
        until("the place to be gone", || agent.counts() == (1, 1, 0));
    }
    drop(waiting());
    until("the place to be gone", || agent.counts() == (1, 1, 0));

    holder.release(held);
    let (terminal, heard) = typist(&folder, &agent);
    let command = listener(&heard);
    drop(terminal);
    until("the command to hear of the hang-up", || lines(&heard).len() > 1);
    end_listener(command);
    drop(holder);
    until("nothing to be left", || agent.counts() == (0, 0, 0));
    assert_eq!(lines(&heard)[1..], ["SIGHUP"]);
}

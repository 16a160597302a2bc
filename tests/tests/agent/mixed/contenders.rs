//! The contenders: every SDK, the command and curl, each in a process of its own.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tenure_tests::harness::{Program, TenureRun, binary, python_interpreter};

use super::witness::{Witness, limit_of};

pub(crate) const LANGUAGES: [&str; 5] = ["python", "typescript", "rust", "command", "curl"];
pub(crate) const KINDS: [&str; 3] = ["leader", "semaphore", "master"];
/// The languages whose programs contend with several threads or tasks.
pub(crate) const SDKS: [&str; 3] = ["python", "typescript", "rust"];

/// Grants between two kills, at most.
const GRANTS_BETWEEN_KILLS_MAX: u64 = 20;
/// Exit statuses of an impatient contender: another one had the resource for the whole wait, or the agent gave no answer.
const NOT_ACQUIRED: [i32; 2] = [75, 69];

/// One that contends, and is started again after its end.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) kind: &'static str,
    pub(crate) language: &'static str,
    pub(crate) socket: PathBuf,
    /// That many threads or tasks contend side by side, and none is impatient.
    pub(crate) threads: Option<usize>,
}

struct Contender {
    part: Part,
    name: String,
    program: Program,
    /// A wait of the command that may end by itself.
    is_impatient: bool,
    struck: bool,
}

/// All of them, and who kills them.
pub(crate) struct Contenders<'a> {
    witness: &'a Witness,
    random: ChaCha8Rng,
    started: u64,
    members: Vec<Contender>,
    /// By language.
    pub(crate) kills: BTreeMap<&'static str, u64>,
    next_kill_at: usize,
}

impl<'a> Contenders<'a> {
    /// Starts one for each part.
    pub(crate) fn start(parts: Vec<Part>, witness: &'a Witness, seed: u64) -> Contenders<'a> {
        let random = ChaCha8Rng::seed_from_u64(seed);
        let mut all = Contenders {
            witness,
            random,
            started: 0,
            members: Vec::new(),
            kills: BTreeMap::new(),
            next_kill_at: 0,
        };
        for part in parts {
            let member = all.launch(part);
            all.members.push(member);
        }
        all
    }

    /// Starts those again that have ended, and kills one if it is time.
    pub(crate) fn look_after(&mut self) {
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            let Some(status) = member.program.ended() else { continue };
            let gave_up = member.is_impatient
                && status.code().is_some_and(|code| NOT_ACQUIRED.contains(&code));
            if gave_up {
                self.witness.judge().gave_up(member.part.kind, &member.name);
            }
            let is_done = gave_up || member.part.language == "command" && status.success();
            assert!(member.struck || is_done, "{} ended by itself: {status}", member.name);
            let part = member.part.clone();
            self.members[index] = self.launch(part);
        }
        let grants = self.witness.judge().outcomes.len();
        if grants >= self.next_kill_at {
            self.next_kill_at = grants + 1 + self.below(GRANTS_BETWEEN_KILLS_MAX) as usize;
            self.strike();
        }
    }

    /// Kills all that is left.
    pub(crate) fn end(mut self) {
        for member in &mut self.members {
            kill_group(&member.program);
            member.program.wait();
        }
    }

    /// Kills one; every second time one that is inside, if there is any.
    fn strike(&mut self) {
        let judge = self.witness.judge();
        let inside: Vec<Option<u32>> =
            self.members.iter().map(|member| judge.insider(&member.name)).collect();
        drop(judge);
        let wanted = self.below(2) == 0 && inside.iter().any(Option::is_some);
        let candidates: Vec<usize> =
            (0..inside.len()).filter(|&index| !wanted || inside[index].is_some()).collect();
        let index = candidates[self.below(candidates.len() as u64) as usize];
        let only_the_inner = self.below(2) == 0;
        let member = &mut self.members[index];
        match inside[index] {
            // Of `tenure run` the one that runs, or the one that is run.
            Some(pid) if member.part.language == "command" && only_the_inner => {
                kill_one(i32::try_from(pid).expect("process numbers are small"));
            }
            _ => kill_group(&member.program),
        }
        member.struck = true;
        *self.kills.entry(member.part.language).or_default() += 1;
    }

    fn launch(&mut self, part: Part) -> Contender {
        let Part { kind, language, ref socket, threads } = part;
        self.started += 1;
        let name = format!("{language}-{}", self.started);
        let witness = self.witness.socket();
        let limit = limit_of(kind).to_string();
        let is_brief = language == "command" && self.below(4) == 0;
        let mut command = match language {
            "command" => {
                let script = script("command.sh");
                let mut options = match kind {
                    "semaphore" => vec!["--semaphore", "mixed", "--limit", &limit],
                    "master" => vec!["--master"],
                    _ => vec!["--leader", "mixed"],
                };
                options.extend(["--project", "mixed", "--name", &name, "--quiet"]);
                if is_brief {
                    options.extend(["--wait", "50ms"]);
                }
                let inner = [script.as_path(), &witness, Path::new(kind), Path::new(&name)];
                let inner = inner.map(|it| it.to_str().expect("our paths are UTF-8"));
                let mut run = TenureRun::new(socket, &options, &inner);
                let path = std::env::var_os("PATH").unwrap_or_default();
                let programs =
                    binary("tenure").parent().expect("it lies in a directory").to_owned();
                let path = std::iter::once(programs).chain(std::env::split_paths(&path));
                run.command().env("PATH", std::env::join_paths(path).expect("paths of PATH"));
                run.command().stdout(Stdio::null()).stderr(Stdio::inherit());
                run.into_command()
            }
            _ => {
                let mut command = contender(language);
                command.arg(socket).arg(&witness).args([kind, &limit, &name]).stdin(Stdio::null());
                command.args(threads.map(|threads| threads.to_string()));
                command
            }
        };
        // Curl's script has children of its own.
        let program = Program::start(command.process_group(0));
        let is_impatient = is_brief || language == "rust" && threads.is_none();
        Contender { part, name, program, is_impatient, struck: false }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next_u64() % n
    }
}

fn contender(language: &str) -> Command {
    match language {
        "python" => {
            let mut command = Command::new(python_interpreter());
            let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client-sdk/python/src");
            command.arg(script("threads.py")).env("PYTHONPATH", package);
            command.env("PYTHONDONTWRITEBYTECODE", "1");
            command
        }
        "typescript" => {
            let mut command = Command::new("node");
            let target = binary("puppet");
            let target =
                target.parent().and_then(Path::parent).expect("a profile lies in a directory");
            let package = target.join("typescript/dist/index.js");
            assert!(
                package.exists(),
                "{} is missing: run tests/prepare typescript",
                package.display()
            );
            command.arg(script("node.mjs")).env("TENURE_TYPESCRIPT", package);
            command
        }
        "rust" => Command::new(binary("contender")),
        _ => Command::new(script("curl.sh")),
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contenders").join(name)
}

fn kill_group(program: &Program) {
    kill_one(-i32::try_from(program.pid()).expect("process numbers are small"));
}

fn kill_one(pid: i32) {
    match kill(Pid::from_raw(pid), Signal::SIGKILL) {
        // It has ended meanwhile.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => panic!("process {pid} cannot be killed: {error}"),
    }
}

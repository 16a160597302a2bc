//! The validity page for programs in C, Go, Java and PHP: the header of `client-sdk/c`, and readers against an agent.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;
use tenure::page;
use tenure_tests::harness::{
    Agent, Client, Granted, Session, TenureRun, boottime_ns, read_when_there, until,
};
use uuid::Uuid;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-sdk/c");
/// The layout that the agent writes.
const WIRE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-sdk/wire/src/page.rs");
/// Kept from run to run.
const GO_CACHE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/go");
/// Long enough for a reader to be started before a hold has ended, ms.
const SHORT_TTL_MS: u64 = 4000;
/// /proc/uptime is that much behind at most, and two readings of a page take a moment, ns.
const NEAR_END_NS: u64 = 500_000_000;

fn source(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

#[track_caller]
fn run(command: &mut Command) -> (Option<i32>, String) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}: see tests/run"));
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    (output.status.code(), format!("{said}{errors}"))
}

#[track_caller]
fn succeed(command: &mut Command) -> String {
    let (code, said) = run(command);
    assert_eq!(code, Some(0), "{command:?}: {said}");
    said
}

/// Compiles a program in C.
#[track_caller]
fn compile(source: &Path, program: &Path) {
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-I", FOLDER]);
    succeed(compiler.arg("-o").arg(program).arg(source));
}

/// A reader program, which is asked about a hold.
struct Reader {
    program: PathBuf,
    first: Vec<PathBuf>,
    folder: TempDir,
}

impl Reader {
    #[track_caller]
    fn make(make: impl FnOnce(&Path) -> (PathBuf, Vec<PathBuf>)) -> Reader {
        let folder = TempDir::with_prefix("tenure-reader-").expect("a temporary directory");
        let (program, first) = make(folder.path());
        Reader { program, first, folder }
    }

    #[track_caller]
    fn ask(&self, of: &Session, session: Uuid, hold: Uuid, slot: u32) -> (Option<i32>, String) {
        let mut command = Command::new(&self.program);
        command.args(&self.first).arg(&of.page).args([session.to_string(), hold.to_string()]);
        run(command.arg(slot.to_string()).current_dir(self.folder.path()))
    }

    /// Until when the reader sees the hold as held.
    #[track_caller]
    fn held_until(&self, of: &Session, hold: &Granted) -> Option<u64> {
        match self.ask(of, of.session, hold.hold, hold.slot) {
            (Some(1), said) if said == "not held\n" => None,
            (Some(0), said) => {
                let until = said.strip_prefix("held until ").expect("it says until when");
                Some(until.trim_end().parse().expect("an instant"))
            }
            (code, said) => panic!("{code:?}: {said}"),
        }
    }

    /// Asks the reader over the life of holds.
    #[track_caller]
    fn follows_the_agent(&self) {
        let mut agent = Agent::start();
        let mut http = agent.http();
        let session = http.register(&json!({"keepalive_ms": 600_000}));
        let hold = http.acquire(session.session, "leader", "one", &json!({}));
        let seen = self.held_until(&session, &hold).expect("it is held");
        assert!(hold.valid_until_boottime_ns <= seen, "{seen}");
        assert!(seen < boottime_ns() + hold.ttl_ms * 1_000_000, "{seen}");

        let not_held = (Some(1), "not held\n".to_owned());
        let other = Uuid::new_v4();
        assert_eq!(self.ask(&session, session.session, other, hold.slot), not_held);
        assert_eq!(self.ask(&session, session.session, hold.hold, hold.slot + 1), not_held);
        assert_eq!(self.ask(&session, session.session, hold.hold, page::SLOTS), not_held);
        let (code, said) = self.ask(&session, other, hold.hold, hold.slot);
        assert!(code == Some(2) && said.contains("is not of this session"), "{code:?}: {said}");

        http.post("/v1/revoke", &json!({"kind": "leader", "name": "one"})).json(200);
        until("the page to say so", || self.held_until(&session, &hold).is_none());

        let hold = http.acquire(session.session, "leader", "two", &json!({"ttl_ms": SHORT_TTL_MS}));
        agent.kill();
        let last = agent.page(&session).slot(hold.slot).valid_until_ns;
        let seen = self.held_until(&session, &hold);
        let was_early = boottime_ns() + NEAR_END_NS < last;
        assert!(seen == Some(last) || (seen.is_none() && !was_early), "{seen:?} of {last}");
        until("valid-until to pass", || last <= boottime_ns());
        assert_eq!(self.held_until(&session, &hold), None);
    }
}

#[test]
fn a_program_in_c_sees_whether_a_hold_is_valid() {
    let reader = Reader::make(|folder| {
        compile(&source("readers/held.c"), &folder.join("held"));
        (folder.join("held"), Vec::new())
    });
    reader.follows_the_agent();
    // As README says, under a hold of the command.
    let agent = Agent::start();
    let said = reader.folder.path().join("said");
    let script = format!(
        "{} \"$TENURE_PAGE\" \"$TENURE_SESSION\" \"$TENURE_HOLD\" \"$TENURE_SLOT\" >{}",
        reader.program.display(),
        said.display()
    );
    let run = TenureRun::new(&agent.socket(), &["--leader", "role"], &["sh", "-c", &script]);
    let (code, _, err) = run.finish();
    assert_eq!(code, 0, "{err}");
    assert!(read_when_there(&said).starts_with("held until "));
}

#[test]
fn a_program_in_go_sees_whether_a_hold_is_valid() {
    let reader = Reader::make(|folder| {
        let mut go = Command::new("go");
        go.env("CGO_ENABLED", "0").env("GO111MODULE", "off").env("GOCACHE", GO_CACHE);
        go.args(["build", "-trimpath", "-o"]).arg(folder.join("held"));
        succeed(go.arg(source("readers/held.go")));
        (folder.join("held"), Vec::new())
    });
    reader.follows_the_agent();
}

#[test]
fn a_program_in_java_sees_whether_a_hold_is_valid() {
    let reader = Reader::make(|folder| {
        let mut compiler = Command::new("javac");
        compiler.args(["-Xlint:all", "-Werror", "-d"]).arg(folder);
        succeed(compiler.arg(source("readers/Held.java")));
        let path = ["-cp".into(), folder.to_owned(), "Held".into()];
        ("java".into(), path.into())
    });
    reader.follows_the_agent();
}

#[test]
fn a_program_in_php_sees_whether_a_hold_is_valid() {
    let reader = Reader::make(|_| ("php".into(), vec![source("readers/held.php")]));
    reader.follows_the_agent();
}

/// The numbers of the layout that the wire crate names.
fn numbers() -> Vec<(&'static str, u64)> {
    let size = |at: usize| at as u64;
    vec![
        ("VERSION", page::VERSION.into()),
        ("SLOTS", page::SLOTS.into()),
        ("SLOTS_MAX", page::SLOTS_MAX.into()),
        ("SLOT_SIZE", size(page::SLOT_SIZE)),
        ("VERSION_AT", size(page::VERSION_AT)),
        ("SLOTS_AT", size(page::SLOTS_AT)),
        ("SESSION_AT", size(page::SESSION_AT)),
        ("BOOT_ID_AT", size(page::BOOT_ID_AT)),
        ("REVISION_AT", size(page::REVISION_AT)),
        ("HOLD_AT", size(page::HOLD_AT)),
        ("TOKEN_AT", size(page::TOKEN_AT)),
        ("VALID_UNTIL_AT", size(page::VALID_UNTIL_AT)),
        ("STATE_AT", size(page::STATE_AT)),
        ("STATE_FREE", page::STATE_FREE.into()),
        ("STATE_WAITING", page::STATE_WAITING.into()),
        ("STATE_HELD", page::STATE_HELD.into()),
        ("STATE_JEOPARDY", page::STATE_JEOPARDY.into()),
        ("STATE_RELEASED", page::STATE_RELEASED.into()),
        ("STATE_LOST", page::STATE_LOST.into()),
    ]
}

#[test]
fn the_header_has_the_layout_of_the_page() {
    let numbers = numbers();
    let wire = fs::read_to_string(WIRE).expect("it is there");
    let named = wire.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(':'));
    // A size is a function of the slots.
    let named = named.map(|(name, _)| name).filter(|name| *name != "SIZE" && !name.contains(' '));
    let named: BTreeSet<&str> = named.collect();
    let known = numbers.iter().map(|(name, _)| *name).chain(["MAGIC"]).collect();
    assert_eq!(named, known, "a constant of the layout is not compared with the header");

    let folder = TempDir::with_prefix("tenure-header-").expect("a temporary directory");
    let (text, program) = (folder.path().join("numbers.c"), folder.path().join("numbers"));
    let print = |(name, _): &(&str, u64)| {
        format!("printf(\"{name} %llu\\n\", (unsigned long long)TENURE_PAGE_{name});\n")
    };
    let prints: String = numbers.iter().map(print).collect();
    let content = format!(
        "#define _POSIX_C_SOURCE 200809L\n#include <stdio.h>\n#include \"tenure_page.h\"\n\
         int main(void) {{\nputs(TENURE_PAGE_MAGIC);\n{prints}return 0;\n}}\n"
    );
    fs::write(&text, content).expect("the directory is ours");
    compile(&text, &program);
    let magic = String::from_utf8(page::MAGIC.into()).expect("letters");
    let lines: String = numbers.iter().map(|(name, is)| format!("{name} {is}\n")).collect();
    assert_eq!(succeed(&mut Command::new(&program)), format!("{magic}\n{lines}"));
}

//! The conformance script of all SDKs (`client-sdk/conformance`), with both twins of the Rust one.

mod run;
mod script;
mod twins;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use self::run::Run;
use self::script::{directory, scenarios};
use self::twins::{Loop, Threads, Twin};

/// Set in a process that runs one file.
const ALONE: &str = "TENURE_TESTS_ALONE";

/// Runs a file in a process of its own: a fork copies the locks of all threads, and has none of the threads that would
/// open them.
fn alone<T: Twin>(file: &str) {
    if std::env::var_os(ALONE).is_some() {
        return all_of::<T>(file);
    }
    let this = std::thread::current();
    let name = this.name().expect("a test has a name");
    let mut again = Command::new(std::env::current_exe().expect("it has a path"));
    again.args([name, "--exact", "--nocapture"]).env(ALONE, "");
    let output = again.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs every scenario of a file, whatever becomes of those before.
fn all_of<T: Twin>(file: &str) {
    let mut failed = Vec::new();
    for scenario in scenarios(file) {
        let name = scenario.name.clone();
        let thread = std::thread::Builder::new().name(name.clone());
        let run = thread.spawn(move || Run::<T>::scenario(&scenario)).expect("a thread");
        if run.join().is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{file}: {failed:#?}");
}

macro_rules! files {
    ($($file:ident: $how:ident),*) => {
        $(mod $file {
            use super::{Loop, Threads, $how};

            #[test]
            fn with_an_event_loop() {
                $how::<Loop>(concat!(stringify!($file), ".json"));
            }

            #[test]
            fn with_threads() {
                $how::<Threads>(concat!(stringify!($file), ".json"));
            }
        })*

        #[test]
        fn no_file_is_left_out() {
            let here = BTreeSet::from([$(concat!(stringify!($file), ".json").to_owned()),*]);
            let names = directory().read_dir().expect("it is there").flatten();
            let names = names.map(|file| file.file_name().to_string_lossy().into_owned());
            let there: BTreeSet<_> = names.filter(|name| name.ends_with(".json")).collect();
            assert_eq!(here, there);
        }
    };
}

files!(acquire: all_of, blocked: all_of, fork: alone, losses: all_of, redis: all_of, restarts: all_of);

//! The conformance script of all SDKs (`client-sdk/conformance`), with both twins of the Rust one.

mod run;
mod script;
mod twins;

use std::collections::BTreeSet;

use self::run::Run;
use self::script::{directory, scenarios};
use self::twins::{Loop, Threads, Twin};

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
    ($($file:ident),*) => {
        $(mod $file {
            use super::{Loop, Threads, all_of};

            #[test]
            fn with_an_event_loop() {
                all_of::<Loop>(concat!(stringify!($file), ".json"));
            }

            #[test]
            fn with_threads() {
                all_of::<Threads>(concat!(stringify!($file), ".json"));
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

files!(acquire, fork, losses, redis, restarts);

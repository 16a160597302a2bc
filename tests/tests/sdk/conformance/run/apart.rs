//! Steps in which the program is not itself: it stands still, or goes on as two processes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;

use fork::Fork;
use tenure_tests::harness::binary;

use super::{Events, Run, ms};
use crate::conformance::script::{Block, Step};
use crate::conformance::twins::Twin;

impl<T: Twin> Run<T> {
    /// Nothing of the SDK runs meanwhile, so that the look at the end is its first one.
    pub(super) fn block(&self, block: &Block) {
        let hold =
            |label: &Option<String>| label.as_ref().map(|label| Arc::clone(&self.holds[label]));
        let (held, over) = (hold(&block.held), hold(&block.over));
        let revoke =
            block.kind.zip(block.name.as_ref()).map(|(kind, name)| self.revoking(kind, name));
        let time = ms(block.ms);
        self.twin.block(move || {
            if let Some(mut revoke) = revoke {
                assert!(revoke.status().expect("it starts").success());
            }
            sleep(time);
            assert!(held.is_none_or(|hold| hold.is_held()), "it ended meanwhile");
            assert!(!over.is_some_and(|hold| hold.is_held()), "it was revoked meanwhile");
        });
    }

    pub(super) fn revoking(&self, kind: tenure::wire::Kind, name: &str) -> Command {
        let mut tenure = Command::new(binary("tenure"));
        tenure.args(["revoke", kind.as_str(), name]).env("TENURE_SOCKET", self.agent.socket());
        tenure
    }

    #[expect(clippy::disallowed_methods, reason = "what is here is the parent's to release")]
    pub(super) fn fork(&mut self, steps: &[Step]) {
        let child = match fork::fork().expect("a process") {
            Fork::Parent(child) => child,
            Fork::Child => {
                let done = catch_unwind(AssertUnwindSafe(|| self.go_on_in_child(steps)));
                std::process::exit(i32::from(done.is_err()));
            }
        };
        let status = fork::waitpid(child).expect("it ends");
        assert_eq!(status, 0, "the child failed");
    }

    fn go_on_in_child(&mut self, steps: &[Step]) {
        // Its thread is not here.
        std::mem::forget(std::mem::replace(&mut self.twin, T::start()));
        for program in self.sessions.values_mut() {
            // A thread of the parent may have had the lock.
            program.events = Events::default();
        }
        for step in steps {
            eprintln!("in the child: {step:?}");
            self.step(step);
        }
    }
}

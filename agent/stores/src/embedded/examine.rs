//! An examination of the embedded store.

use tenure_wire::Check;

use super::Embedded;
use crate::Examination;

const JOURNAL: &str = "embedded.journal";
const TOKENS: &str = "embedded.tokens";
const QUARANTINE: &str = "embedded.quarantine";

impl Embedded {
    /// Everything is known already.
    pub(super) fn examination(&self) -> Examination {
        let checks = vec![self.journal(), self.tokens(), self.quarantine()];
        Box::pin(std::future::ready(checks))
    }

    fn journal(&self) -> Check {
        match self.journal.borrow().refusal() {
            None => Check::ok(JOURNAL, "every hold would survive a restart of the agent"),
            Some(cause) => Check::failure(
                JOURNAL,
                format!("{cause}: nothing is granted, and it is tried again every few seconds"),
                "make space in runtime_dir, or mend its rights; do not stop the agent before that: the \
                 next one would not know what is held",
            ),
        }
    }

    fn tokens(&self) -> Check {
        let left = self.engine.tokens_left();
        match self.ledger.failure() {
            None => Check::ok(TOKENS, format!("{left} fencing tokens are durable in advance")),
            Some(cause) => {
                let detail = format!("{left} fencing tokens are left, and {cause}");
                let remedy = "look at the space and the rights of state_dir; nothing is granted \
                              without tokens";
                match left {
                    0 => Check::failure(TOKENS, detail, remedy),
                    _ => Check::warning(TOKENS, detail, remedy),
                }
            }
        }
    }

    fn quarantine(&self) -> Check {
        let Some(until) = self.engine.quarantined_until(self.latest) else {
            return Check::ok(QUARANTINE, "no unknown holds of an earlier agent");
        };
        let left = until.since(self.latest).as_secs() + 1;
        Check::warning(
            QUARANTINE,
            format!(
                "the journal of an agent that did not end clean is gone: nothing is granted for \
                 another {left} s, as long as its holds may be valid"
            ),
            "wait; or, if nothing of before runs any more, `tenured quarantine end`; and keep runtime_dir from \
             whatever removed or damaged the journal",
        )
    }
}

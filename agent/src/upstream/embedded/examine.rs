//! What can be wrong with the embedded store.

use tenure::wire::Check;

use super::Embedded;
use crate::upstream::Examination;

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
        match self.database.borrow().failure() {
            None => Check::ok(JOURNAL, "every hold would survive a restart of the agent"),
            Some(cause) => Check::failure(
                JOURNAL,
                format!("not written any more: {cause}"),
                "look at the space and the rights of runtime_dir, then restart the agent while \
                 nothing is held: it would lose what is",
            ),
        }
    }

    fn tokens(&self) -> Check {
        let left = self.engine.tokens_left();
        match &self.last_error {
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
            "wait; and keep runtime_dir from whatever removed the journal",
        )
    }
}

//! Harm that was done to the directories of a host.

/// Harm, as far as it matters to the agent that reads them next.
#[derive(Debug, Default)]
pub(super) struct Harm {
    /// The runtime directory's files may be lost by what happened to it.
    pub(super) is_harmed: bool,
    /// The same, and nothing that is written makes up for it.
    is_damaged: bool,
    /// A slot of the ledger was damaged already; both would be beyond help.
    ledger_damaged: bool,
}

impl Harm {
    /// Something is lost for good.
    pub(super) fn damage(&mut self) {
        (self.is_harmed, self.is_damaged) = (true, true);
    }

    /// True if the ledger was not damaged before; it counts as damaged from now on.
    pub(super) fn may_damage_ledger(&mut self) -> bool {
        !std::mem::replace(&mut self.ledger_damaged, true)
    }

    /// Failed writes are on the medium after all.
    pub(super) fn mend(&mut self) {
        self.is_harmed &= self.is_damaged;
    }

    /// True if the runtime directory was harmed; forgets it.
    pub(super) fn take(&mut self) -> bool {
        self.is_damaged = false;
        std::mem::take(&mut self.is_harmed)
    }
}

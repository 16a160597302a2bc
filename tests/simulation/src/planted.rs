//! Faults built in on purpose, to prove that the harness notices.

use std::fmt;
use std::str::FromStr;

use tenure_core::turn::{Order, Sound, Step};

/// A mistake of the kind that the invariants are there to catch. Each is made at the edge of the
/// pure rooms, by settings, by the order of a turn's steps or by the simulated shell; the rooms themselves are
/// as shipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Holders are not told to stop earlier than the upstream's expiry.
    NoMargin,
    /// Valid-until counts from the arrival of the reply instead of the sending of the request.
    FromArrival,
    /// Tokens begin anew when the upstream restarts.
    TokenReset,
    /// The release of a waiting claim is answered and not done.
    WaiterKept,
    /// Every beat of a waiting claim sends it to the end of the queue.
    OrderOfBeats,
    /// A release is done once more, to whoever holds the resource by then.
    DoubleRelease,
    /// The journal is written after the replies.
    LateJournal,
    /// Hints are lost and nobody asks.
    NoHints,
    /// Requests leave before the journal and the pages are written.
    EarlyCalls,
    /// Requests leave before the pages are written.
    CallsFirst,
    /// Pages that are voided are written after all others.
    VoidLast,
    /// A renewal that says that something was taken away is not understood.
    DeafToLoss,
    /// A grant whose caller has gone without reading of it is not given back.
    UnreadKept,
    /// Ended holds are not written down for the next agent.
    ForgetRequests,
    /// An agent that starts takes up its store as if no time had passed.
    ForgetEnded,
    /// A write to a full disk is not done, and nobody notices.
    FullUnnoticed,
    /// The mark of the log is written before the records that it speaks of.
    MarkFirst,
    /// A store that has lost its journal grants at once.
    NoQuarantine,
    /// Tokens are granted before the ledger is on the medium.
    UnsyncedTokens,
    /// After one error nothing is written any more.
    NeverRecovers,
    /// The lock on the directories is given to everybody.
    NoLock,
    /// The events kept for a session's reader grow without end.
    RingUnbounded,
    /// A stream whose reader takes nothing more is closed, although guarded work has it.
    FullStreamEnds,
    /// The agent is not told when guarded work closes its stream.
    DeafToClose,
    /// A call that waits shows that its program makes progress.
    WaitingIsLiving,
    /// Any call shows that its program makes progress.
    AnyCallIsProgress,
    /// The time in which the agent stood still is not counted out.
    StandstillCounts,
    /// A claim of a permit in a quarantine is refused for now, and gets no place.
    QuarantineOrder,
    /// A checkpoint that comes while a beat is on its way is answered like the last one.
    EarlyCheckpoint,
    /// At every message everybody who waits is looked at.
    WalksAll,
    /// Whoever has waited longest is overtaken at every release.
    LastFirst,
    /// What a hint grants counts from the arrival of the hint.
    HintFromArrival,
    /// What a release has passed on is passed on once more, by somebody who found it free before.
    DoubleGrant,
    /// Agents are not told what is granted or free, and do not look for it.
    LostPublication,
}

impl Planted {
    /// All of them, in the order of the table.
    pub const ALL: [Planted; 34] = [
        Planted::NoMargin,
        Planted::FromArrival,
        Planted::TokenReset,
        Planted::WaiterKept,
        Planted::OrderOfBeats,
        Planted::DoubleRelease,
        Planted::LateJournal,
        Planted::NoHints,
        Planted::EarlyCalls,
        Planted::CallsFirst,
        Planted::VoidLast,
        Planted::DeafToLoss,
        Planted::UnreadKept,
        Planted::ForgetRequests,
        Planted::ForgetEnded,
        Planted::FullUnnoticed,
        Planted::MarkFirst,
        Planted::NoQuarantine,
        Planted::UnsyncedTokens,
        Planted::NeverRecovers,
        Planted::NoLock,
        Planted::RingUnbounded,
        Planted::FullStreamEnds,
        Planted::DeafToClose,
        Planted::WaitingIsLiving,
        Planted::AnyCallIsProgress,
        Planted::StandstillCounts,
        Planted::QuarantineOrder,
        Planted::EarlyCheckpoint,
        Planted::WalksAll,
        Planted::LastFirst,
        Planted::HintFromArrival,
        Planted::DoubleGrant,
        Planted::LostPublication,
    ];

    /// Its name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Planted::NoMargin => "no-margin",
            Planted::FromArrival => "from-arrival",
            Planted::TokenReset => "token-reset",
            Planted::WaiterKept => "waiter-kept",
            Planted::OrderOfBeats => "order-of-beats",
            Planted::DoubleRelease => "double-release",
            Planted::LateJournal => "late-journal",
            Planted::NoHints => "no-hints",
            Planted::EarlyCalls => "early-calls",
            Planted::CallsFirst => "calls-first",
            Planted::VoidLast => "void-last",
            Planted::DeafToLoss => "deaf-to-loss",
            Planted::UnreadKept => "unread-kept",
            Planted::ForgetRequests => "forget-requests",
            Planted::ForgetEnded => "forget-ended",
            Planted::FullUnnoticed => "full-unnoticed",
            Planted::MarkFirst => "mark-first",
            Planted::NoQuarantine => "no-quarantine",
            Planted::UnsyncedTokens => "unsynced-tokens",
            Planted::NeverRecovers => "never-recovers",
            Planted::NoLock => "no-lock",
            Planted::RingUnbounded => "ring-unbounded",
            Planted::FullStreamEnds => "full-stream-ends",
            Planted::DeafToClose => "deaf-to-close",
            Planted::WaitingIsLiving => "waiting-is-living",
            Planted::AnyCallIsProgress => "any-call-is-progress",
            Planted::StandstillCounts => "standstill-counts",
            Planted::QuarantineOrder => "quarantine-order",
            Planted::EarlyCheckpoint => "early-checkpoint",
            Planted::WalksAll => "walks-all",
            Planted::LastFirst => "last-first",
            Planted::HintFromArrival => "hint-from-arrival",
            Planted::DoubleGrant => "double-grant",
            Planted::LostPublication => "lost-publication",
        }
    }
}

/// The order of a turn's steps with a fault in it, or the one that ships.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct PlantedOrder(pub(super) Option<Planted>);

impl Order for PlantedOrder {
    fn steps(&self) -> [Step; 5] {
        use Step::{Calls, Journal, Pages, Told, Voids};
        match self.0 {
            Some(Planted::LateJournal) => [Voids, Pages, Told, Journal, Calls],
            Some(Planted::EarlyCalls) => [Calls, Journal, Voids, Pages, Told],
            Some(Planted::CallsFirst) => [Journal, Calls, Voids, Pages, Told],
            Some(Planted::VoidLast) => [Journal, Pages, Voids, Calls, Told],
            _ => Sound.steps(),
        }
    }
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Planted {
    type Err = String;

    fn from_str(text: &str) -> Result<Planted, String> {
        Planted::ALL.into_iter().find(|planted| planted.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Planted::ALL.iter().map(|planted| planted.as_str()).collect();
            format!("{text:?} is not a planted fault: use one of {}", names.join(", "))
        })
    }
}

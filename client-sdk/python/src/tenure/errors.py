"""What can go wrong. Texts that come from the agent are the agent's own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Reason(str, Enum):
    """Why a hold was lost."""

    EXPIRED = "expired"
    """Its valid-until passed before a renewal was confirmed."""
    PREEMPTED = "preempted"
    """A session of higher priority took it."""
    STALLED = "stalled"
    """The program broke its own promise of progress."""
    MAX_HOLD = "max_hold"
    """It lasted as long as it was allowed to."""
    REVOKED = "revoked"
    """An administrator took it away."""
    UPSTREAM_RESET = "upstream_reset"
    """The store lost its data."""
    CONFLICT = "conflict"
    """The store says that somebody else has it."""
    AGENT_STOPPING = "agent_stopping"
    """The agent is stopping."""
    SLEPT = "slept"
    """The machine slept past its valid-until."""
    RELEASED = "released"
    """Another part of this program gave it back."""
    SESSION_GONE = "session_gone"
    """Its session ended."""
    FORGOTTEN = "forgotten"
    """The agent knows nothing of it any more."""
    FORKED = "forked"
    """It belongs to the process that this one was forked from."""
    UNTOLD = "untold"
    """The page shows that it has ended; the agent's reason has not arrived yet."""
    OTHER = "other"
    """A reason that this version of the package does not know; the text of the error has it."""

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, word: str) -> Reason:
        try:
            return cls(word)
        except ValueError:
            return cls.OTHER


@dataclass(frozen=True)
class Holder:
    """Who has a resource, as far as the agent knows."""

    host: str
    name: str
    since_ms: int
    """How long it has been held, ms."""
    token: int
    """The fencing token of the grant; 0 for a program without Tenure."""
    pid: int | None = None
    """The process, when it is on this host."""
    uid: int | None = None
    """Its user, when it is on this host."""
    hold: str | None = None
    """The hold itself, when it is the caller's own."""
    user: str | None = None
    """The name of its user."""
    command: str | None = None
    """Its command line, cut to 256 bytes."""
    kept_ms: int | None = None
    """Its holder has let go, and it is kept from others for so much longer, ms, as `hold_at_least` asked for."""
    ended_ms: int | None = None
    """How long ago its holder let go or lost it, ms, where its history tells."""


class TenureError(Exception):
    """Every error of this package."""


class Busy(TenureError):
    """Another program, thread or task has it, or it was not free in time."""

    def __init__(self, text: str, holder: Holder | None = None, *, held_by_self: bool = False) -> None:
        super().__init__(text)
        self.holder = holder
        self.held_by_self = held_by_self
        """True if the caller would wait for itself, since its own thread or task has it, or one that waits for its end."""


class WaitTimeout(Busy, TimeoutError):
    """It was not free in time."""


class Lost(TenureError):
    """The hold is gone: stop what it guarded. A new grant has a new token.

    Raised by whatever needs the hold, and one of a session's events.
    """

    def __init__(
        self,
        reason: Reason,
        token: int,
        what: str,
        by: str | None = None,
        word: str = "",
        hold: str = "",
        detail: str | None = None,
    ) -> None:
        super().__init__(reason, token, what, by, word, hold, detail)
        self.reason = reason
        self.token = token
        """The fencing token that it had."""
        self.what = what
        """The kind and name, such as `leader/nightly`."""
        self.by = by
        """Who took it away, where the agent says so."""
        self.word = word or reason.value
        """The reason as the agent spelled it."""
        self.hold = hold
        """The hold's id."""
        self.detail = detail
        """Why the hold was taken away, in the administrator's words; of an expired hold, why it was not renewed."""

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        why = f": {self.detail}" if self.detail else ""
        return (
            f"{self.what} with token {self.token} was lost: {self.word}{by}{why}; "
            "stop, and acquire again for a new token"
        )


class AgentUnavailable(TenureError):
    """The agent on this host could not be asked, or gave no answer. It is unknown whether it acted."""


class UpstreamUnavailable(TenureError):
    """The agent is there, but its store does not answer. Holds stay valid until their valid-until."""

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        """When to try again, seconds."""


class Refused(TenureError):
    """The agent said no; `code` says why, and is stable."""

    def __init__(self, code: str, text: str, field: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.field = field
        """The field that is wrong."""
        self.retry_after = retry_after
        """When to try again, seconds."""


class SessionGone(TenureError):
    """The session has ended, and all its holds with it."""


class WrongLoop(TenureError, RuntimeError):
    """The session belongs to another event loop, which is still open."""


class PageError(TenureError):
    """The session's validity page cannot be used."""


class ClocksDiffer(TenureError):
    """This program reads another clock than the agent: it is in another time namespace."""

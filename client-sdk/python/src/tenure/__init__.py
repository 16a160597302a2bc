"""Locks, leadership, leases and semaphores across hosts, kept by the Tenure agent on this host.

A hold is a lease with a fence: its holder knows when it must stop before anybody else can have the same,
and its token lets a store refuse a writer that was too late to notice. Heartbeats are the agent's: a
program that is blocked for longer than any ttl keeps what it holds, and one that ends gives it up at once.

    import tenure

    with tenure.leader("nightly", wait=0) as lead:    # raises tenure.Busy
        work(fence=lead.token)

`tenure.aio` is the same for asyncio.
"""

from . import aio, events, page
from ._sync import (
    Campaign,
    Hold,
    Resource,
    Session,
    Term,
    campaign,
    leader,
    leader_only,
    lease,
    limited,
    master,
    semaphore,
    session,
)
from .errors import (
    AgentUnavailable,
    Busy,
    ClocksDiffer,
    Holder,
    Lost,
    PageError,
    Reason,
    Refused,
    SessionGone,
    TenureError,
    UpstreamUnavailable,
    WaitTimeout,
    WrongLoop,
)
from .events import (
    AgentView,
    Event,
    Granted,
    HistoryEntry,
    HoldView,
    Jeopardy,
    Message,
    Missed,
    Queued,
    Released,
    Revoked,
    Safe,
    Shutdown,
    Snapshot,
    Standing,
    Waiter,
    Why,
)

__all__ = [
    "AgentUnavailable",
    "AgentView",
    "Busy",
    "Campaign",
    "ClocksDiffer",
    "Event",
    "Granted",
    "HistoryEntry",
    "Hold",
    "HoldView",
    "Holder",
    "Jeopardy",
    "Lost",
    "Message",
    "Missed",
    "PageError",
    "Queued",
    "Reason",
    "Refused",
    "Released",
    "Resource",
    "Revoked",
    "Safe",
    "Session",
    "SessionGone",
    "Shutdown",
    "Snapshot",
    "Standing",
    "TenureError",
    "Term",
    "UpstreamUnavailable",
    "WaitTimeout",
    "Waiter",
    "Why",
    "WrongLoop",
    "aio",
    "campaign",
    "events",
    "leader",
    "leader_only",
    "lease",
    "limited",
    "master",
    "page",
    "semaphore",
    "session",
]

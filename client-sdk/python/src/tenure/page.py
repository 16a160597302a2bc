"""The validity page: a file per session in which the agent writes until when each hold is valid.

`docs/page.md` describes the layout. Reading it needs no system call into the agent, and is right even
when the agent is stopped or dead, or when this program stood still.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
import uuid
from time import clock_gettime_ns

from .errors import ClocksDiffer, PageError

MAGIC = b"TENUREP1"
VERSION = 1
SLOTS_MAX = 4095
SLOT_SIZE = 64

NS_PER_MS = 1_000_000
# Offsets in a slot, in words of 8 bytes.
_HOLD, _TOKEN, _VALID_UNTIL = 0, 2, 3
_WORDS = SLOT_SIZE // 8

# It goes on while the machine sleeps: CLOCK_BOOTTIME on Linux; Apple's monotonic clock does so too.
BOOTTIME: int = time.CLOCK_MONOTONIC if sys.platform == "darwin" else time.CLOCK_BOOTTIME

View = tuple["memoryview[int]", int, int, int]
"""A slot as its hold reads it: the page's words, the index of valid-until, the two words of the hold's id."""


def boottime_ns() -> int:
    """Now, in ns since boot, sleep included."""
    return clock_gettime_ns(BOOTTIME)


def check_clock(asked_at_ns: int, valid_ms: int, valid_until_ns: int) -> None:
    """Raises `ClocksDiffer` unless this process reads the agent's clock.

    `asked_at_ns` is `boottime_ns()` of just before the request whose answer told the other two. A
    difference that is shorter than the answer took is not seen.
    """
    earliest = asked_at_ns + valid_ms * NS_PER_MS
    # Answers count whole ms.
    latest = boottime_ns() + (valid_ms + 2) * NS_PER_MS
    if valid_until_ns > latest:
        by, where = valid_until_ns - latest, "behind"
    elif valid_until_ns < earliest and valid_ms > 0:
        by, where = earliest - valid_until_ns, "ahead of"
    else:
        return
    raise ClocksDiffer(
        f"this program's clock is {by / 1e9:.1f} s {where} the agent's: a time namespace; run both in the same one"
    )


def dead_view() -> View:
    """A slot in which nothing is held, ever."""
    return _DEAD


def is_held(view: View) -> bool:
    """True if the hold of that slot is valid at this instant."""
    words, at, high, low = view
    # In this order: a slot changes owner by valid-until zero, the new hold, its valid-until. A word
    # that is read before the slot is seen to be this hold's can only be this hold's. The clock comes
    # last: a thread that was stopped in between must not compare with an earlier now.
    valid_until = words[at]
    return words[at - 3] == high and words[at - 2] == low and clock_gettime_ns(BOOTTIME) < valid_until


def valid_until_ns(view: View) -> int:
    """Until when the hold of that slot is valid; 0 when it is not held, or the slot is another hold's."""
    words, at, high, low = view
    valid_until = words[at]
    return valid_until if words[at - 3] == high and words[at - 2] == low else 0


class Page:
    """A session's page, mapped read-only."""

    def __init__(self, path: str, session: str, boot_id: str) -> None:
        """Maps the page at `path` and checks that it is the page of that session in that boot."""
        if sys.byteorder != "little":
            raise PageError("pages are little endian, and this processor is not: the package has no reader for it")
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                length = min(status.st_size, SLOT_SIZE * (SLOTS_MAX + 1))
                if length < SLOT_SIZE:
                    raise PageError(f"{path} is not this session's page: it is shorter than {SLOT_SIZE} bytes")
                content = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
        except OSError as error:
            raise PageError(
                f"the page {path} cannot be opened ({error.strerror}): it is readable by the user who registered, "
                "and in a container only where the agent's runtime directory is mounted at the same path"
            ) from error
        self.path = path
        self._file = (status.st_dev, status.st_ino)
        # A load of one of these words is one aligned copy of 8 bytes. Decoding byte by byte, as `struct`
        # does for "<Q", could see half of a write.
        self.words: memoryview[int] = memoryview(content).cast("Q")
        self._content = content
        head = content[:SLOT_SIZE]
        version = int.from_bytes(head[8:12], "little")
        self.slots = int.from_bytes(head[12:16], "little")
        difference = ""
        if head[:8] != MAGIC:
            difference = f"it begins with {head[:8]!r}, not with {MAGIC!r}"
        elif version != VERSION:
            difference = f"it has version {version}, not {VERSION}"
        elif self.slots > SLOTS_MAX or length < SLOT_SIZE * (self.slots + 1):
            difference = f"it says that it has {self.slots} slots, and has {length} bytes"
        elif head[16:32] != uuid.UUID(session).bytes:
            difference = f"it is of session {uuid.UUID(bytes=head[16:32])}, not {session}"
        elif head[32:48] != uuid.UUID(boot_id).bytes:
            difference = f"it is of boot {uuid.UUID(bytes=head[32:48])}, not {boot_id}"
        if difference:
            raise PageError(f"{path} is not this session's page: {difference}; is the agent of another version?")

    def is_at(self, path: str) -> bool:
        """True if `path` still names this very file, rather than a newer one in its place."""
        try:
            status = os.stat(path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._file

    def view(self, slot: int, hold: str) -> View:
        """The slot, as the hold reads it."""
        if not 0 <= slot < self.slots:
            return _DEAD
        identity = uuid.UUID(hold).bytes
        high, low = int.from_bytes(identity[:8], "little"), int.from_bytes(identity[8:], "little")
        return (self.words, _WORDS * (slot + 1) + _VALID_UNTIL, high, low)

    def find(self, hold: str, slot: int) -> int:
        """The slot of the hold: `slot`, unless the page shows it as valid elsewhere, or only has it there."""
        identity = uuid.UUID(hold).bytes
        found: list[int] = []
        at = self._content.find(identity, SLOT_SIZE)
        while at >= 0:
            number, offset = divmod(at - SLOT_SIZE, SLOT_SIZE)
            if offset == 0 and number < self.slots:
                found.append(number)
            at = self._content.find(identity, at + 1)
        return max(found, key=lambda number: (valid_until_ns(self.view(number, hold)), number == slot), default=slot)

    def token(self, slot: int, hold: str) -> int | None:
        """The fencing token of the grant; None when there is none, or the slot is another hold's."""
        words, at, high, low = self.view(slot, hold)
        token = words[at - _VALID_UNTIL + _TOKEN]
        mine = words[at - 3] == high and words[at - 2] == low
        return token if mine and token else None


_DEAD: View = (memoryview(bytes(SLOT_SIZE)).cast("Q"), _VALID_UNTIL, 0, 0)
assert _HOLD == 0 and _VALID_UNTIL == 3, "is_held knows these"

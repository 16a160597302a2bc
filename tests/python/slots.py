"""Who is inside, as the kernel sees it: each holder locks one of as many files as there are permits.

The kernel unlocks the file of a program that is killed, at the instant of its death. Whoever holds a
permit and finds no file to lock is one too many.
"""

import fcntl
import os


class TooMany(Exception):
    """There were more holders than permits."""


class Slots:
    def __init__(self, directory, count):
        self.paths = [os.path.join(directory, f"slot-{index}") for index in range(count)]

    def enter(self):
        """Locks a file, and returns its descriptor: closing it unlocks."""
        for path in self.paths:
            slot = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return slot
            except BlockingIOError:
                os.close(slot)
        raise TooMany(f"all {len(self.paths)} permits are in use by others")

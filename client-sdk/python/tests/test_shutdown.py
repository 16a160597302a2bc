"""Programs that end while they hold something, as Python has them end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import tenure
from tenure._blocking import BlockingIo
from tenure._effects import Pause, Steps

pytestmark = pytest.mark.usefixtures("tenure_agent")
PACKAGE = str(Path(tenure.__file__).parent)
BEGIN = """
import atexit, sys, threading, time, tenure

def role(name="r"):
    # Longer than anybody waits for the next grant.
    return tenure.leader(name, ttl=600)

def beside(work, daemon=True):
    begun = threading.Event()
    threading.Thread(target=work, args=(begun,), daemon=daemon).start()
    assert begun.wait(60)
"""
WORK_FOR_EVER = """
def work(begun):
    with role() as hold:
        begun.set()
        while True:
            hold.check()
"""
PROGRAMS = {
    "the end of the program": ("hold = role().acquire()", 0),
    "an exit": ("hold = role().acquire(); sys.exit(3)", 3),
    "an exit in a block": ("with role(): sys.exit(3)", 3),
    "an error": ("hold = role().acquire(); raise KeyError('mine')", 1),
    "a daemon thread that checks": (WORK_FOR_EVER + "beside(work)", 0),
    "a daemon thread that acquires": (
        """
        def work(begun):
            while True:
                with role():
                    begun.set()
        beside(work)
        """,
        0,
    ),
    "a daemon thread that waits for a grant": (
        """
        hold = role().acquire()
        other = tenure.session()
        def work(begun):
            begun.set()
            other.leader("r").acquire()
        beside(work)
        while not other.leader("r").standing().waiting:
            time.sleep(0.001)
        """,
        0,
    ),
    "a daemon thread that follows the events": (
        """
        session = tenure.session()
        hold = session.leader("r", ttl=600).acquire()
        def work(begun):
            events = session.events()
            begun.set()
            for event in events:
                pass
        beside(work)
        """,
        0,
    ),
    "a thread that outlives the main one": (
        """
        def work(begun):
            with role() as hold:
                begun.set()
                threading.main_thread().join()
                hold.check()
            again = role().acquire()
        beside(work, daemon=False)
        """,
        0,
    ),
    "a release at the exit": ("atexit.register(role().acquire().release)", 0),
    "an acquisition at the exit": (
        """
        def late():
            with role("late"):
                kept.check()
        kept = role().acquire()
        atexit.register(late)
        """,
        0,
    ),
    "an object that is collected last": (
        """
        class Worker:
            def __init__(self):
                self.hold = role().acquire()
            def __del__(self):
                if self.hold.is_held():
                    self.hold.release()
        sys.worker = Worker()
        """,
        0,
    ),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_program_that_ends_gives_back_what_it_holds(what: str, tmp_path: Path) -> None:
    text, status = PROGRAMS[what]
    program = tmp_path / "program.py"
    program.write_text(BEGIN + textwrap.dedent(text))
    command = [sys.executable, "-X", "dev", "-W", "error", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    if what == "an error":
        assert done.stderr.count("Traceback") == 1 and done.stderr.endswith("KeyError: 'mine'\n")
        assert PACKAGE not in done.stderr
    else:
        assert done.stderr == ""
    with tenure.session() as other, other.leader("r", wait=60) as mine:
        assert mine.is_held()


def test_what_needs_no_thread_at_the_end_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    def steps() -> Steps[None]:
        yield Pause(0)

    io = BlockingIo()
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError):
        io.spawn(steps(), "release")
    # As Python 3.12 has it once the main thread has ended.
    monkeypatch.setattr(type(threading.main_thread()), "is_alive", lambda _: False)
    io.spawn(steps(), "release")
    with pytest.raises(RuntimeError):
        io.spawn(steps(), "events", lambda: None)

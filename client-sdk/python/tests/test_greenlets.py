"""The package for threads in greenlets of gevent, in programs of their own: gevent changes all of a process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "greenlets.py"


@pytest.mark.parametrize("what", ["share", "wait", "turns", "lose", "stopped"])
def test_greenlets(what: str, tmp_path: Path) -> None:
    python = os.environ.get("TENURE_SDK_ENVIRONMENT", sys.executable)
    command = [python, str(PROGRAM), str(tmp_path / "agent"), what]
    pipe = subprocess.PIPE
    program = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        output, errors = program.communicate(timeout=120)
    finally:
        # Its agent, too, which may be stopped.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    assert (output, errors, program.returncode) == ("done\n", "", 0)

"""The package for threads in greenlets of gevent, in programs of their own: gevent changes all of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "greenlets.py"


@pytest.mark.parametrize("what", ["share", "wait", "lose", "stopped"])
def test_greenlets(what: str, tmp_path: Path) -> None:
    python = os.environ.get("TENURE_SDK_ENVIRONMENT", sys.executable)
    command = [python, str(PROGRAM), str(tmp_path / "agent"), what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)

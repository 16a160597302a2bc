"""The fixture `tenure_agent`: a real agent of the test's own, which the default sessions find."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ._sync import close_default
from .testing import Agent


@pytest.fixture
def tenure_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """A real agent in `tmp_path`; TENURE_SOCKET names its socket while the test runs."""
    with Agent(tmp_path / "tenured") as agent:
        monkeypatch.setenv("TENURE_SOCKET", agent.socket)
        # Sessions of an earlier test are another agent's.
        _forget_sessions()
        yield agent
        _forget_sessions()


def _forget_sessions() -> None:
    close_default()
    # It imports redis-py, which is not every program's.
    compat = sys.modules.get("tenure.compat")
    if compat is not None:
        compat.close_idle()

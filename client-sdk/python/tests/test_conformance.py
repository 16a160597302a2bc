"""The conformance script of all SDKs, with both twins of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conformance_script import Loop, Run, Threads, scenarios


@pytest.mark.parametrize("twin", [Threads, Loop], ids=["threads", "asyncio"])
@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["name"])
def test_scenario(scenario: dict[str, Any], twin: type[Threads] | type[Loop], tmp_path: Path) -> None:
    missing = set(scenario.get("needs", [])) - twin.abilities
    if missing:
        pytest.skip(f"{twin.__name__} cannot: {', '.join(missing)}")
    one = twin()
    try:
        Run(scenario, one, tmp_path).run()
    finally:
        one.close()

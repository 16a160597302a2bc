"""The README's examples run as they stand; the package installs into a clean environment, and is typed."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import tenure
from reference import reference
from tenure.testing import Agent

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"^```python ?([\w-]*)\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)


def surroundings(agent: Agent) -> dict[str, Any]:
    """What the examples leave to their reader."""

    async def nothing(*_: Any, **__: Any) -> None:
        return None

    async def batches() -> Any:
        yield 1

    async def work(token: int) -> None:
        # For the events that the example waits for.
        asyncio.get_running_loop().call_later(0.3, lambda: agent.revoke("leader", "mine"))

    return {
        "tenure": tenure,
        "pytest": pytest,
        "generate_report": lambda fence: None,
        "batches": batches,
        "delete": nothing,
        # Long enough for another thread to ask meanwhile.
        "write": lambda line, fence: time.sleep(0.001),
        "do_cleanup": nothing,
        "is_enough": lambda: True,
        "work": work,
    }


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_example(number: int, tenure_agent: Agent) -> None:
    sort, text = BLOCKS[number]
    names = surroundings(tenure_agent)
    if sort == "no-run":
        exec(compile(text, "README.md", "exec"), names)
        names["test_report"](tenure_agent)
    elif sort == "async":
        # One's own hold, so that somebody is there to lose something.
        text = text.replace("    async for event in", "    mine = await session.leader('mine').acquire()\n    async for event in")
        exec(compile("async def main():\n" + textwrap.indent(text, "    "), "README.md", "exec"), names)
        asyncio.run(asyncio.wait_for(names["main"](), 30))
    elif sort == "fastapi":
        # Compiled for the environment's own version of Python.
        pytest.importorskip("pydantic_core", exc_type=ImportError)
        call_the_handler(text, names)
    else:
        exec(compile(text, "README.md", "exec"), names)


def call_the_handler(text: str, names: dict[str, Any]) -> None:
    import httpx

    inside, fences = 0, list[int]()

    async def close_account(account: str, fence: int) -> int:
        nonlocal inside
        assert inside == 0, "two requests are inside"
        inside += 1
        await asyncio.sleep(0.001)
        inside -= 1
        fences.append(fence)
        return fence

    async def main() -> list[httpx.Response]:
        # FastAPI finds the annotations of a handler in its module.
        exec(compile(text, "README.md", "exec"), names)
        transport = httpx.ASGITransport(names["app"])
        async with httpx.AsyncClient(transport=transport, base_url="http://example") as client:
            return await asyncio.gather(*(client.post("/accounts/7/close") for _ in range(8)))

    names["close_account"] = close_account
    answers = asyncio.run(main())
    assert all(answer.status_code == 200 for answer in answers), answers
    assert sorted(answer.json()["closed"] for answer in answers) == fences == sorted(set(fences))


def test_the_example_of_the_repository_runs(tenure_agent: Agent) -> None:
    (text,) = re.findall(r"^```python\n(.*?)^```", (ROOT.parents[1] / "README.md").read_text(), re.M | re.S)
    fences: list[int] = []
    exec(compile(text, "README.md", "exec"), {"tenure": tenure, "clean_up": lambda fence: fences.append(fence)})
    assert len(fences) == 1


def test_the_docstring_of_the_package_runs(tenure_agent: Agent) -> None:
    text = textwrap.dedent((tenure.__doc__ or "").split("\n\n")[2])
    exec(compile(text, "tenure", "exec"), {"work": lambda fence: None})


def test_everything_public_is_exported() -> None:
    assert sorted(tenure.__all__) == list(tenure.__all__)
    for module in ROOT.glob("src/tenure/*.py"):
        ast.parse(module.read_text(), feature_version=(3, 10))
    assert all(hasattr(tenure, name) for name in tenure.__all__)


@pytest.mark.skipif("TENURE_SDK_WHEEL" not in os.environ, reason="tests/run builds the wheel and names it in TENURE_SDK_WHEEL")
def test_the_wheel_in_a_clean_environment(tmp_path: Path, tenure_agent: Agent) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "clean"], check=True)
    python = tmp_path / "clean/bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", os.environ["TENURE_SDK_WHEEL"]]
    subprocess.run(install, check=True)
    assert (next((tmp_path / "clean").glob("lib/*/site-packages/tenure/py.typed"))).is_file()
    program = "generate_report = lambda fence: print('token', fence)\n" + BLOCKS[0][1]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.stdout.startswith("token "), done


def test_the_reference_is_that_of_the_package() -> None:
    written = (ROOT.parents[1] / "docs/python.md").read_text()
    assert written == reference(), "make it anew with client-sdk/python/tests/reference.py"

"""Writes docs/python.md from the package's own signatures and docstrings.

usage: python client-sdk/python/tests/reference.py >docs/python.md
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
HEAD = """# Reference of the Python package

Made from the package by `client-sdk/python/tests/reference.py`; `client-sdk/python/README.md` is the introduction. `tenure.aio` has the same
names for asyncio: what blocks here is awaited there.
"""


def reference() -> str:
    sys.path.insert(0, str(ROOT / "src"))
    import tenure
    import tenure.compat
    import tenure.testing

    lines = [HEAD]
    lines += module("tenure", tenure, tenure.__all__)
    aio = [name for name in tenure.__all__ if hasattr(tenure.aio, name) and not name.startswith("_")]
    own = sorted({*(name for name in aio if inspect.isclass(getattr(tenure.aio, name))), "Acquisition"})
    own = [name for name in own if getattr(tenure.aio, name).__module__ == "tenure.aio"]
    lines += module("tenure.aio", tenure.aio, own)
    lines += module("tenure.page", tenure.page, ["Page", "boottime_ns", "check_clock", "is_held", "valid_until_ns"])
    lines += module("tenure.compat", tenure.compat, ["LeaderElection", "Lock", "LockError", "LockNotOwnedError", "RedisSemaphore"])
    lines += module("tenure.testing", tenure.testing, ["Agent", "program"])
    return "\n".join(lines).rstrip() + "\n"


def module(title: str, of: ModuleType, names: list[str]) -> Iterator[str]:
    yield f"## {title}\n"
    found = [(name, getattr(of, name)) for name in names]
    # Functions first: they are where one begins.
    for name, one in sorted(found, key=lambda pair: (inspect.isclass(pair[1]), pair[0])):
        if inspect.isclass(one):
            yield from a_class(name, one)
        elif inspect.isroutine(one):
            yield f"### `{name}{signature(one)}`\n"
            yield text(one)


def a_class(name: str, one: type[Any]) -> Iterator[str]:
    # Only those that a reader can look up.
    bases = [base.__name__ for base in one.__bases__ if re.fullmatch(r"tenure(\.[a-z]\w*)+", base.__module__)]
    bases = [base for base in bases if not base.startswith("_")]
    yield f"### class `{name}`" + (f"({', '.join(bases)})" if bases else "") + "\n"
    yield text(one)
    members = attributes(one)
    for part in reversed(one.__mro__):
        if not part.__module__.startswith("tenure") or (part is not one and part.__name__ in bases):
            continue
        for key, member in vars(part).items():
            if key.startswith("_"):
                continue
            if isinstance(member, property):
                members[key] = " ".join(text(member.fget).split())
            elif inspect.isfunction(member):
                members[f"{key}{signature(member)}"] = " ".join(text(member).split())
    for key, about in members.items():
        yield f"- `{key}`" + (f": {about}" if about else "")
    if members:
        yield ""


def attributes(one: type[Any]) -> dict[str, str]:
    """Fields, with the string behind each."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
    except (OSError, TypeError):
        return {}
    assert isinstance(body, ast.ClassDef)
    init = next((part for part in body.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)
    found: dict[str, str] = {}
    for part in [*body.body, *(init.body if init else [])]:
        targets = part.targets if isinstance(part, ast.Assign) else [part.target] if isinstance(part, ast.AnnAssign) else []
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        names = [] if init is not None and part in init.body else names
        names += [target.attr for target in targets if isinstance(target, ast.Attribute)]
        if names and not names[0].startswith("_"):
            found[names[0]] = last = ""
            key = names[0]
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and found and isinstance(part.value.value, str):
            last = " ".join(part.value.value.split())
            found[key] = found[key] or last
    return found


def signature(one: Any) -> str:
    found = inspect.signature(one)
    parameters = [parameter for name, parameter in found.parameters.items() if name != "self"]
    shown = str(found.replace(parameters=parameters)).replace("'", "")
    # Aliases by their name, whatever Python's version makes of them.
    shown = re.sub(r"\btenure\.\w+\.|\b_\w+\.", "", shown)
    return shown.replace("-> R", "-> Resource") if shown.endswith("-> R") else re.sub("-> S$", "-> Session", shown)


def text(one: Any) -> str:
    return (inspect.getdoc(one) or "") + "\n" if getattr(one, "__doc__", None) else ""


if __name__ == "__main__":
    print(reference(), end="")

"""A service of several replicas, two of whose loops run on one of them only.

SIGTERM stops the loops first and resigns then, so that the next replica never works beside this one.
With TENURE_SOLO=1 the same program runs as a single replica, without an agent.
"""

from __future__ import annotations

import asyncio
import signal
import time

import tenure


def say(what: str) -> None:
    print(time.time_ns(), what, flush=True)


async def loop(name: str, lead: tenure.aio.Term) -> None:
    try:
        while True:
            lead.check()
            say(f"{name} works with token {lead.token}")
            await asyncio.sleep(0.02)
    finally:
        # What takes time to stop.
        await asyncio.sleep(0.02)
        say(f"{name} stopped")


async def lead() -> None:
    async for term in tenure.aio.campaign("reconciler"):
        async with term:
            say(f"leads with token {term.token}")
            await asyncio.gather(loop("watch", term), loop("reconcile", term))
        say(f"lost: {term.lost}")


async def main() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await lead()
    except asyncio.CancelledError:
        say("resigned")


if __name__ == "__main__":
    asyncio.run(main())

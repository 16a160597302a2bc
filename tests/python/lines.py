"""How a test talks to a Python program: one JSON command a line on standard input, one JSON line back.

A command has an `id`, and its answer the same; commands run side by side, so that one which waits
holds nothing up. Lines without an id are events. `{"do": "cancel", "of": ID}` cancels a command.
The program ends with its standard input, after it has cancelled what still runs.
"""

import asyncio
import json
import os
import sys
import time


def say(**line):
    """One write a line, so that lines of several tasks never mix."""
    line.setdefault("at_ns", time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    os.write(sys.stdout.fileno(), (json.dumps(line) + "\n").encode())


async def serve(commands, at_end=lambda: None):
    """Obeys until standard input ends. `commands` maps a name to a coroutine function."""
    running = {}

    async def run(command):
        try:
            say(id=command["id"], result=await commands[command["do"]](command))
        except asyncio.CancelledError:
            say(id=command["id"], error="CancelledError")
        except Exception as error:
            say(id=command["id"], error=f"{type(error).__name__}: {error}")

    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        command = json.loads(line)
        if command["do"] == "cancel":
            running[command["of"]].cancel()
            continue
        task = asyncio.create_task(run(command))
        running[command["id"]] = task
        task.add_done_callback(lambda _, number=command["id"]: running.pop(number))
    at_end()
    for task in list(running.values()):
        task.cancel()
    await asyncio.gather(*running.values())

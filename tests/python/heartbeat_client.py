"""The heartbeat of a client after SPEC-032, "Redis Session Plane": section 5.3, as written.

usage: heartbeat_client.py API_URL API_KEY

Time passes a hundred times as fast between two heartbeats; how long the loop wants to wait is told.
"""

import asyncio
import logging
import sys
import threading

import httpx
from lines import say, serve

log = logging.getLogger("heartbeat")


class _Told(logging.Handler):
    def emit(self, record):
        say(event="log", text=record.getMessage())


log.addHandler(_Told())
log.setLevel(logging.WARNING)
log.propagate = False

_wait_for = asyncio.wait_for


async def _wait_less(awaitable, timeout):
    say(event="rest", seconds=timeout)
    return await _wait_for(awaitable, timeout / 100)


asyncio.wait_for = _wait_less


class _HeartbeatHandle:
    def __init__(self, stop_event, thread, loop):
        self.stop_event, self.thread, self.loop = stop_event, thread, loop


# From here to the next line like this one the text is that of the specification.


async def _heartbeat_loop(
    http_client: httpx.AsyncClient,
    api_url: str,
    api_key: str,
    session_id: str,
    stop: asyncio.Event,
) -> None:
    """Runs on a dedicated asyncio loop. Isolated from the MCP main loop."""
    headers = {
        "Authorization": f"Bearer {api_key}",
        "X-Prism-Session-Id": session_id,
    }
    while not stop.is_set():
        try:
            r = await http_client.post(
                f"{api_url}/api/v1/controller/heartbeat",
                headers=headers,
                timeout=5.0,
            )
            if r.status_code >= 400:
                log.warning("heartbeat rejected (status=%s)", r.status_code)
        except httpx.HTTPError as exc:
            log.warning("heartbeat HTTP error (will retry): %s", exc)
        try:
            await asyncio.wait_for(stop.wait(), timeout=30.0)
            return
        except asyncio.TimeoutError:
            pass


def spawn_heartbeat(api_url, api_key, session_id):
    """Returns a stop_event + thread handle. Called from prism_start."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def run():
        asyncio.set_event_loop(loop)
        client = httpx.AsyncClient()
        try:
            loop.run_until_complete(
                _heartbeat_loop(client, api_url, api_key, session_id, stop)
            )
        finally:
            loop.run_until_complete(client.aclose())
            loop.close()

    thread = threading.Thread(target=run, daemon=True, name=f"hb-{session_id[:8]}")
    thread.start()
    return _HeartbeatHandle(stop_event=stop, thread=thread, loop=loop)


# From here on it is not.

API_URL, API_KEY = sys.argv[1:3]
handles = {}


def post(path, session=None, body=None):
    headers = {"Authorization": f"Bearer {API_KEY}"}
    if session:
        headers["X-Prism-Session-Id"] = session
    return httpx.post(f"{API_URL}/api/v1/controller/{path}", headers=headers, json=body, timeout=5.0)


async def start(command):
    """prism_start: registers, and has the heartbeat begin."""
    answer = await asyncio.to_thread(post, "register", None, command["body"])
    answer.raise_for_status()
    started = answer.json()
    session = started["session_id"]
    handles[session] = spawn_heartbeat(API_URL, API_KEY, session)
    return started


async def beat(command):
    """One heartbeat more, as prism_checkpoint sends it."""
    answer = await asyncio.to_thread(post, "heartbeat", command["session"], {"checkpoint": True})
    return {"status": answer.status_code, "body": answer.json()}


async def wrap(command):
    """prism_wrap: the thread's stop_event is set before the release is sent."""
    handle = handles.pop(command["session"])
    handle.loop.call_soon_threadsafe(handle.stop_event.set)
    await asyncio.to_thread(handle.thread.join)
    answer = await asyncio.to_thread(post, "release", command["session"])
    return {"status": answer.status_code, "body": answer.json(), "alive": handle.thread.is_alive()}


asyncio.run(serve({"start": start, "beat": beat, "wrap": wrap}))

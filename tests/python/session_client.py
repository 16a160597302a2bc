"""A backend's session store after SPEC-032, "Redis Session Plane": sections 5.1 to 5.6 as written.

usage: session_client.py REDIS_URL
"""

import asyncio
import datetime
import json
import os
import random
import sys
import uuid

from lines import say, serve
from redis.asyncio import Redis
from slots import Slots, TooMany

PREEMPT_CAS = """
local current = redis.call("GET", KEYS[1])
if current == ARGV[1] then
redis.call("SET", KEYS[1], ARGV[2], "EX", ARGV[3])
return 1
end
return 0
"""

redis = Redis.from_url(sys.argv[1], decode_responses=True)
preempt_cas = redis.register_script(PREEMPT_CAS)
# By session id: tenant, project and ttl.
sessions = {}


def master_key(tenant, project):
    return f"prism:master:{tenant}:{project}"


def project_channel(tenant, project):
    return f"prism:events:project:{tenant}:{project}"


async def register(command):
    """§5.2, with the compare-and-swap of §5.2.1."""
    tenant, project, surface = command["tenant"], command["project"], command["surface"]
    ttl = command.get("ttl", 90)
    session = str(uuid.uuid4())
    key = f"prism:session:{session}"
    fields = {
        "tenant_id": tenant,
        "project_id": project,
        "agent_identity": command["identity"],
        "agent_surface": surface,
        "machine_id": command.get("machine", "m-1"),
        "is_master": 0,
        "registered_at": datetime.datetime.now(datetime.timezone.utc).isoformat(),
    }
    await redis.hset(key, mapping=fields)
    await redis.expire(key, ttl)
    master = await redis.setnx(master_key(tenant, project), session)
    if master:
        await redis.expire(master_key(tenant, project), ttl)
    elif surface == "claude_desktop":
        master = await preempt(tenant, project, session, ttl)
    if master:
        await redis.hset(key, "is_master", 1)
    await redis.sadd(f"prism:project:{tenant}:{project}:sessions", session)
    sessions[session] = (tenant, project, ttl)
    return {"session": session, "master": bool(master)}


async def preempt(tenant, project, session, ttl):
    for _ in range(3):
        incumbent = await redis.get(master_key(tenant, project))
        if incumbent is None:
            if await redis.set(master_key(tenant, project), session, nx=True, ex=ttl):
                return True
            continue
        if await redis.hget(f"prism:session:{incumbent}", "agent_surface") == "claude_desktop":
            return False
        if await preempt_cas(keys=[master_key(tenant, project)], args=[incumbent, session, ttl]):
            payload = {"type": "MasterPreempted", "project": project, "by": {"session": session}}
            await redis.publish(f"prism:events:session:{incumbent}", json.dumps(payload))
            return True
    return False


async def heartbeat(command):
    """§5.3; says whether the session is there, and whether it is master."""
    session = command["session"]
    tenant, project, ttl = sessions[session]
    holds = await redis.get(master_key(tenant, project)) == session
    pipeline = redis.pipeline(transaction=False).expire(f"prism:session:{session}", ttl)
    if holds:
        pipeline.expire(master_key(tenant, project), ttl)
    return {"session": bool((await pipeline.execute())[0]), "master": holds}


async def release(command):
    """§5.4."""
    session = command["session"]
    tenant, project, _ = sessions.pop(session)
    holds = await redis.get(master_key(tenant, project)) == session
    pipeline = redis.pipeline(transaction=False).delete(f"prism:session:{session}")
    if holds:
        pipeline.delete(master_key(tenant, project))
    pipeline.srem(f"prism:project:{tenant}:{project}:sessions", session)
    payload = {"type": "session_ended", "session": session}
    pipeline.publish(project_channel(tenant, project), json.dumps(payload))
    await pipeline.execute()


async def cycle(command):
    """Registers, stays inside for a while if that made it master, and releases, until `stop`."""
    slots = Slots(command["slots"], 1)
    while not stopping.is_set():
        session = await register(command)
        if session["master"]:
            try:
                slot = slots.enter()
            except TooMany as error:
                say(event="too_many", why=str(error))
            else:
                say(event="entered")
                await asyncio.sleep(random.uniform(0, command["stay_ms"] / 1000))
                os.close(slot)
        await release(session)
        await asyncio.sleep(random.uniform(0, command["pause_ms"] / 1000))


async def stop(_):
    """Lets cycles end with the turn that they are in."""
    stopping.set()


async def subscribe(command):
    """§5.6: the session's own channel and its project's; `message` events follow."""
    tenant, project, _ = sessions[command["session"]]
    pubsub = redis.pubsub(ignore_subscribe_messages=True)
    channels = {f"prism:events:session:{command['session']}", project_channel(tenant, project)}
    await pubsub.subscribe(*channels)

    async def hear():
        async for message in pubsub.listen():
            if message is not None:
                say(event="message", channel=message["channel"], payload=json.loads(message["data"]))

    # Kept, because a task without a reference may be collected.
    listening.append(asyncio.create_task(hear()))


async def broadcast(command):
    """§5.6: to everybody in a project, or to one session."""
    target = command.get("session")
    channel = (
        f"prism:events:session:{target}" if target else project_channel(command["tenant"], command["project"])
    )
    return await redis.publish(channel, json.dumps(command["payload"]))


async def status(command):
    """§5.7: the master's hash, and all sessions of the project."""
    tenant, project = command["tenant"], command["project"]
    master = await redis.get(master_key(tenant, project))
    members = await redis.smembers(f"prism:project:{tenant}:{project}:sessions")
    return {
        "master": master,
        "master_hash": await redis.hgetall(f"prism:session:{master}") if master else None,
        "sessions": {member: await redis.hgetall(f"prism:session:{member}") for member in members},
    }


listening = []
stopping = asyncio.Event()
commands = [register, heartbeat, release, cycle, stop, subscribe, broadcast, status]
asyncio.run(serve({command.__name__: command for command in commands}))

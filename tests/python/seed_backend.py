"""A backend after SPEC-032, "Redis Session Plane", which keeps its sessions in memory and offers nothing else.

usage: seed_backend.py PORT TTL_S API_KEY

Register, heartbeat, release and status are sections 5.2, 5.3, 5.4 and 5.7; a session that is not beaten expires.
`POST /test` sets what goes wrong: `store` (false: 503), `key` (another one), `lose` (a path, answers
of which are cut).
"""

import sys
import time
import uuid
from datetime import datetime, timezone

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from pydantic import BaseModel

PORT, TTL, KEY = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
PREFERRED = "claude_desktop"

app = FastAPI()
# By session id: its hash, and when it expires.
sessions = {}
# By tenant and project: a session id.
masters = {}
faults = {"store": True, "key": KEY, "lose": None}


class Register(BaseModel):
    tenant_id: str
    project_id: str
    agent_identity: str
    agent_surface: str = "unknown"
    machine_id: str = ""


def expire():
    now = time.monotonic()
    for session, (_, until) in list(sessions.items()):
        if until <= now:
            forget(session)


def forget(session):
    record, _ = sessions.pop(session)
    place = record["tenant_id"], record["project_id"]
    if masters.get(place) == session:
        del masters[place]


def require_auth(request: Request):
    if request.headers.get("authorization") != f"Bearer {faults['key']}":
        raise HTTPException(401, "this key is not known")
    if not faults["store"]:
        raise HTTPException(503, "redis is away")
    expire()


def controller_status(tenant, project):
    def row(session):
        record = sessions[session][0]
        return record | {"session_id": session, "is_master": masters.get((tenant, project)) == session}

    of_project = [
        session for session, (record, _) in sessions.items() if (record["tenant_id"], record["project_id"]) == (tenant, project)
    ]
    master = masters.get((tenant, project))
    return {"master": row(master) if master else None, "sessions": [row(session) for session in of_project]}


@app.post("/api/v1/controller/register", dependencies=[Depends(require_auth)])
async def register(body: Register):
    session, place = str(uuid.uuid4()), (body.tenant_id, body.project_id)
    record = body.model_dump() | {"registered_at": datetime.now(timezone.utc).isoformat()}
    sessions[session] = (record, time.monotonic() + TTL)
    incumbent = masters.get(place)
    preempts = incumbent and body.agent_surface == PREFERRED and sessions[incumbent][0]["agent_surface"] != PREFERRED
    if incumbent is None or preempts:
        masters[place] = session
    return {"session_id": session, "controller_status": controller_status(*place)}


@app.post("/api/v1/controller/heartbeat", dependencies=[Depends(require_auth)])
async def heartbeat(x_prism_session_id: str = Header(...)):
    if x_prism_session_id not in sessions:
        raise HTTPException(410, "session expired, re-register via prism_start")
    sessions[x_prism_session_id] = (sessions[x_prism_session_id][0], time.monotonic() + TTL)
    return {"ok": True, "ttl_remaining": TTL}


@app.post("/api/v1/controller/release", dependencies=[Depends(require_auth)])
async def release(x_prism_session_id: str = Header(...)):
    if x_prism_session_id in sessions:
        forget(x_prism_session_id)
    return {"ok": True}


@app.get("/api/v1/controller/status", dependencies=[Depends(require_auth)])
async def status(project_id: str, tenant_id: str = "default"):
    return controller_status(tenant_id, project_id)


@app.post("/test")
async def test(request: Request):
    faults.update(await request.json())


async def losing(scope, receive, send):
    """Begins the answer, and hangs up, where it is to be lost."""
    if scope["type"] != "http" or not faults["lose"] or not scope["path"].endswith(faults["lose"]):
        return await app(scope, receive, send)

    async def begin(message):
        if message["type"] == "http.response.start":
            await send(message)

    await app(scope, receive, begin)


uvicorn.run(losing, host="127.0.0.1", port=PORT, log_level="warning")

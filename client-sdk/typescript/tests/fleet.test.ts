// What a program may ask of the whole fleet, and what it may say about its own holds there.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Busy, Lost, Refused, Tenure } from "tenure";
import { startAgent, type TestAgent } from "tenure/testing";

import { Redis } from "./redis.js";
import { apart } from "./apart.js";
import { until } from "./until.js";

let agent: TestAgent;
let first: Tenure;
let second: Tenure;
before(async () => {
  agent = await startAgent();
  first = new Tenure({ socket: agent.socket, name: "first" });
  second = new Tenure({ socket: agent.socket, name: "second" });
});
after(async () => {
  await agent.close();
});

test("a hold is kept from others as long as it was asked for", async () => {
  const job = await first.leader("kept").acquire({ wait: 0 });
  await job.release();
  await (await second.leader("kept").acquire({ wait: 0 })).release();
  const kept = await first.leader("kept", { holdAtLeast: "1h" }).acquire({ wait: 0 });
  await kept.release();
  assert.equal(kept.isHeld(), false);
  await assert.rejects(second.leader("kept").acquire({ wait: 0 }), (error) => {
    assert.ok(error instanceof Busy);
    assert.ok((error.holder?.keptMs ?? 0) > 3_000_000, JSON.stringify(error.holder?.keptMs));
    return true;
  });
  await assert.rejects(
    first.leader("kept", { holdAtLeast: "25h" }).acquire({ wait: 0 }),
    (error) => error instanceof Refused && error.problem.field === "hold_at_least_ms",
  );
});

test("whoever revokes says why, and keeps the one who loses it away", async () => {
  const hold = await first.leader("moved").acquire();
  const told = await second.revoke({ kind: "leader", name: "moved", reason: "upgrade of hostb", forMs: 3_600_000 });
  assert.equal(told.revoked, 1);
  assert.deepEqual(told.from?.map(({ name, pid }) => ({ name, pid })), [{ name: "first", pid: process.pid }]);
  const lost = await hold.lost();
  assert.ok(lost instanceof Lost && lost.reason === "revoked");
  assert.equal(lost.detail, "upgrade of hostb");
  assert.match(lost.message, /was lost: revoked by \S+ on \S+: upgrade of hostb; stop/);
  await assert.rejects(first.leader("moved").acquire({ wait: 0 }));
  await using next = await second.leader("moved").acquire({ wait: 0 });
  assert.ok(next.isHeld());
});

test("the history says who had it, and how each end came", async () => {
  const one = await first.leader("past").acquire();
  await one.release();
  const two = await second.leader("past").acquire();
  await first.revoke({ kind: "leader", name: "past", reason: "enough" });
  await two.lost();
  const history = await until("the agent to write it down", async () => {
    const past = await first.history("leader", "past");
    return past.changes.length === 4 ? past : undefined;
  });
  assert.deepEqual(history, { ...(await first.leader("past").history()), changes: history.changes });
  assert.deepEqual(
    history.changes.map(({ what, token, name }) => ({ what, token, name })),
    [
      { what: "lost", token: two.token, name: "second" },
      { what: "granted", token: two.token, name: "second" },
      { what: "released", token: one.token, name: "first" },
      { what: "granted", token: one.token, name: "first" },
    ],
  );
  assert.equal(history.changes[0]?.reason, "revoked");
  assert.equal(history.changes[0]?.pid, process.pid);
  assert.ok((history.changes[0]?.agoMs ?? -1) >= 0);
});

test("why says who has it, who waits, and how it came to that", async () => {
  const hold = await first.leader("asked").acquire();
  const waiting = apart(() => second.leader("asked").acquire());
  const why = await until("the agent to write it down", async () => {
    const told = await first.leader("asked").why();
    return told.standing.waiting === 1 && told.history.length === 1 ? told : undefined;
  });
  assert.deepEqual(why.standing.holders.map(({ name, token }) => ({ name, token })), [{ name: "first", token: hold.token }]);
  assert.deepEqual(why.standing.waiters.map(({ name, position, pid }) => ({ name, position, pid })), [{ name: "second", position: 1, pid: process.pid }]);
  assert.deepEqual(why.history.map(({ what, token }) => ({ what, token })), [{ what: "granted", token: hold.token }]);
  assert.deepEqual((await second.why("leader", "nobody")).history, []);
  await hold.release();
  await (await waiting).release();
});

test("the agents of a store are told, this one first", async () => {
  await using redis = await Redis.start();
  const upstream = redis.url;
  await using one = await startAgent({ upstream, env: { TENURED_HOST_NAME: "a" } });
  await using _two = await startAgent({ upstream, env: { TENURED_HOST_NAME: "b" } });
  const agents = await until("them to know each other", async () => {
    const told = await new Tenure({ socket: one.socket }).agents();
    return told.length === 2 ? told : undefined;
  });
  assert.deepEqual(agents.map(({ host, this: own, seen }) => ({ host, own, seen })), [{ host: "a", own: true, seen: true }, { host: "b", own: false, seen: true }]);
});

test("a hold of the whole fleet says why there is none", async () => {
  const refused = (error: unknown): boolean => {
    assert.ok(error instanceof Refused && error.problem.code === "forbidden", String(error));
    assert.match(error.message, /role: this agent keeps holds on this host alone .*; name the store that they share in its setting upstream/);
    return true;
  };
  const fleet = true;
  let ran = 0;
  for (const resource of [first.leader("role", { fleet }), first.lease("role", { fleet }), first.semaphore("role", { limit: 2, fleet })]) {
    await assert.rejects(resource.run(() => ran++), refused);
    await assert.rejects(resource.acquire({ wait: 0 }), refused);
    await assert.rejects(resource.campaign().next(), refused);
  }
  assert.equal(ran, 0);
  await using hold = await first.leader("role", { fleet: false }).acquire({ wait: 0 });
  assert.ok(hold.isHeld());
});

test("a list of more than a page is whole", async () => {
  await using many = await first.session({ holds: 110 });
  const names = Array.from({ length: 110 }, (_, n) => `many-${n}`);
  await Promise.all(names.map((name) => many.leader(name).acquire()));
  const all = await second.list("leader", "many-*");
  assert.deepEqual(all.map(({ name }) => name).sort(), names.sort());
  assert.deepEqual((await second.list("semaphore", "many-*")).length, 0);
});

// The package when it cannot hear its agent: lost answers, silence, broken connections.

import assert from "node:assert/strict";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { AgentUnavailable, Lost, Tenure, type Session } from "tenure";
import { startAgent, type TestAgent } from "tenure/testing";
import { Client } from "../dist/client/client.js";
import { latestNow } from "../dist/page/clock.js";
import { SLOT_SIZE, VALID_UNTIL_AT, uuidBytes } from "../dist/page/layout.js";

import { Gate } from "./gate.js";
import { until } from "./until.js";

let agent: TestAgent;
let direct: Tenure;
before(async () => {
  agent = await startAgent();
  direct = new Tenure({ socket: agent.socket });
});
after(() => agent.close());

async function behind(gate: Gate): Promise<Session> {
  return new Tenure({ socket: gate.path }).session();
}

const holding = async (name: string): Promise<number> => (await direct.standing("leader", name)).holding;

test("a lost answer is not a second hold", async () => {
  await using gate = await Gate.before(agent.socket);
  await using session = await behind(gate);
  for (const [name, wait] of [["once", 0], ["timed", "1h"], ["for ever", undefined]] as const) {
    gate.caught = 0;
    gate.loseReplies(1);
    const hold = await session.leader(name).acquire({ wait });
    assert.equal(gate.caught, 1);
    assert.equal(hold.token, (await direct.standing("leader", name)).holders[0]?.token);
    gate.loseReplies(1);
    await hold.release();
    assert.equal(gate.caught, 2);
    assert.equal(await holding(name), 0);
  }
  gate.caught = 0;
  gate.loseReplies(5);
  const hold = await session.leader("many").acquire();
  assert.equal(gate.caught, 5);
  assert.equal(hold.token, (await direct.standing("leader", "many")).holders[0]?.token);
});

for (const wait of ["1h", undefined]) {
  test(`a first acquire outlasts an agent that is stopped (wait: ${wait})`, async (t) => {
    const register = t.mock.method(Client.prototype, "register");
    const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
    agent.signal("SIGSTOP");
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const waiting = new Tenure({ socket: agent.socket }).leader("first").acquire({ wait });
    while (register.mock.callCount() < 3) {
      t.mock.timers.tick(1000);
      await turn();
    }
    agent.signal("SIGCONT");
    t.mock.timers.reset();
    await using hold = await waiting;
    assert.equal(hold.isHeld(), true);
  });
}

for (const wait of [0, "1h", undefined]) {
  test(`a cancelled call gives back what it got (wait: ${wait})`, async () => {
    await using gate = await Gate.before(agent.socket);
    await using session = await behind(gate);
    gate.setSilent(true);
    const controller = new AbortController();
    const reason = new Error("enough");
    const call = session.leader("cancelled").acquire({ wait, signal: controller.signal });
    await until("the grant", async () => (await holding("cancelled")) === 1);
    controller.abort(reason);
    await assert.rejects(call, reason);
    gate.setSilent(false);
    await until("it to be given back", async () => (await holding("cancelled")) === 0);
  });
}

test("a single try does not wait long for an agent that is stopped", async () => {
  await using session = await direct.session();
  const hold = await session.leader("released").acquire();
  agent.signal("SIGSTOP");
  await until("it to stand still", () => readFileSync(`/proc/${agent.pid}/stat`, "utf8").includes(") T "));
  // A session has yet to be opened for one of them, and somebody else waits for it for longer.
  const later = new Tenure({ socket: agent.socket });
  const patient = later.leader("patient").acquire();
  const released = hold.release();
  const tries = [session.leader("stopped").acquire({ wait: 0 }), later.leader("stopped").acquire({ wait: 0 })];
  for (const outcome of await Promise.allSettled(tries)) {
    assert.ok(outcome.status === "rejected");
    assert.ok(outcome.reason instanceof AgentUnavailable && outcome.reason.code === "ETIMEDOUT");
    assert.match(outcome.reason.message, /gave no answer within 5 s: it may be stopped/);
  }
  await released;
  agent.signal("SIGCONT");
  await (await patient).release();
  await until("it to be given back", async () => (await holding("released")) === 0);
  await until("nothing to be left", async () => (await holding("stopped")) === 0);
});

test("a page without an event is a loss too", async () => {
  await using gate = await Gate.before(agent.socket);
  await using session = await behind(gate);
  const hold = await session.leader("silent").acquire();
  gate.setSilent(true);
  await direct.revoke({ kind: "leader", name: "silent" });
  await until("the page to say so", () => !hold.isHeld());
  assert.equal((await hold.lost())?.reason, "forgotten");
  gate.setSilent(false);
});

test("who sees the end before the package does has seen a loss", async () => {
  await using session = await direct.session();
  const hold = await session.leader("seen", { ttl: "1s" }).acquire();
  const lost = hold.lost();
  agent.signal("SIGSTOP");
  // Nothing of the package runs meanwhile.
  while (hold.isHeld());
  assert.throws(() => hold.check(), (error) => error instanceof Lost && error.reason === "expired");
  assert.equal(hold.signal.reason?.reason, "expired");
  assert.match(hold.signal.reason?.message, /was lost: expired: the agent at \S+ has not renewed it in time; /);
  const released = hold.release();
  assert.equal((await lost)?.reason, "expired");
  await assert.rejects(released, Lost);
  agent.signal("SIGCONT");
  await until("it to be given back", async () => (await holding("seen")) === 0);
});

test("a hold that an absent agent may have in another slot is given back", async () => {
  const gate = await Gate.before(agent.socket);
  const session = await behind(gate);
  const hold = await session.leader("unexplained").acquire();
  await gate[Symbol.asyncDispose]();
  await until("the silence", () => session.state === "reconnecting");
  await direct.revoke({ kind: "leader", name: "unexplained" });
  await until("the page to say so", () => !hold.isHeld());
  assert.throws(() => hold.check(), (error) => error instanceof Lost && error.reason === "untold");
  assert.equal(hold.signal.aborted, false);
  await hold.release();
  assert.equal(await hold.lost(), undefined);
  assert.equal(hold.signal.aborted, false);
  await assert.rejects(session.close(), AgentUnavailable);
});

test("a hold that a restarted agent renewed elsewhere is held", async () => {
  await using gate = await Gate.before(agent.socket);
  await using session = await behind(gate);
  const hold = await session.leader("renewed", { ttl: "1s" }).acquire();
  agent.signal("SIGSTOP");
  // Nothing of the package runs meanwhile.
  while (hold.isHeld());
  const path = join(agent.directory, "run", "pages", session.id);
  const page = readFileSync(path);
  const at = page.indexOf(uuidBytes(hold.id), SLOT_SIZE);
  const other = page.length - SLOT_SIZE;
  page.copy(page, other, at, at + SLOT_SIZE);
  page.writeBigUInt64LE(0n, at + VALID_UNTIL_AT);
  page.writeBigUInt64LE(latestNow() + 60_000_000_000n, other + VALID_UNTIL_AT);
  renameSync(path, `${path}.old`);
  writeFileSync(path, page);
  hold.check();
  assert.equal(hold.isHeld(), true);
  assert.equal(hold.signal.aborted, false);
  renameSync(`${path}.old`, path);
  agent.signal("SIGCONT");
});

test("a broken stream goes on where it ended", async () => {
  await using gate = await Gate.before(agent.socket);
  await using session = await behind(gate);
  const types: string[] = [];
  void (async () => {
    for await (const { type } of session.events()) types.push(type);
  })();
  const hold = await session.leader("broken").acquire();
  await until("the grant's event", () => types.includes("granted"));
  types.length = 0;
  gate.cut();
  await until("another stream", () => gate.streams === 2 && session.state === "connected");
  await direct.revoke({ kind: "leader", name: "broken" });
  assert.equal((await hold.lost())?.reason, "revoked");
  await until("its event", () => types.includes("lost"));
  assert.deepEqual(types, ["lost"], "no snapshot");
});

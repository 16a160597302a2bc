import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";

import { AgentUnavailable, Busy, Hold, Lost, Refused, SessionGone, Tenure, WaitTimeout, type Event } from "tenure";
import { startAgent, type TestAgent } from "tenure/testing";

import { Page } from "../dist/page/reader.js";
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

async function waiters(kind: "leader" | "semaphore", name: string): Promise<number> {
  return (await first.standing(kind, name)).waiting;
}

test("a release that comes too late says so", async () => {
  const hold = await first.leader("late").acquire();
  // Nothing of the package runs meanwhile.
  const env = { ...process.env, TENURE_SOCKET: agent.socket };
  execFileSync(process.env["TENURE"] ?? "tenure", ["revoke", "leader", "late"], { env, stdio: "ignore" });
  await assert.rejects(hold.release(), (error) => error instanceof Lost && error.reason === "revoked");
});

test("a hold is granted, held and given back", async () => {
  const hold = await first.leader("life").acquire({ wait: 0 });
  assert.ok(hold.isHeld() && hold.validForMs() > 1000);
  hold.check();
  assert.equal(hold.kind, "leader");
  assert.equal(hold.name, "life");
  assert.equal(hold.token, (await first.standing("leader", "life")).holders[0]?.token);
  await hold.release();
  assert.equal(hold.isHeld(), false);
  assert.equal(hold.signal.aborted, false);
  assert.equal(hold.validForMs(), 0);
  assert.throws(() => hold.check(), (error) => error instanceof Lost && error.reason === "released");
  assert.equal(await hold.lost(), undefined);
  await hold.release();
  assert.equal((await first.standing("leader", "life")).holding, 0);
});

test("a single try says who has it", async () => {
  await using _hold = await first.leader("taken").acquire();
  await assert.rejects(apart(() => second.leader("taken").acquire({ wait: 0 })), (error) => {
    assert.ok(error instanceof Busy && !error.heldBySelf);
    assert.equal(error.holder?.name, "first");
    assert.equal(error.holder?.pid, process.pid);
    return true;
  });
});

test("a wait that took too long leaves no waiter, and says who has it", async () => {
  await using _hold = await first.leader("long").acquire();
  await assert.rejects(apart(() => second.leader("long").acquire({ wait: "100ms" })), (error) => {
    assert.ok(error instanceof WaitTimeout);
    assert.match(error.message, /leader\/long was not free within/);
    assert.equal(error.holder?.name, "first");
    return true;
  });
  assert.equal(await waiters("leader", "long"), 0);
});

for (const wait of [undefined, "1h"]) {
  test(`a wait of ${wait ?? "any length"} is granted when its turn comes`, async () => {
    const held = await first.leader(`turn-${wait}`).acquire();
    const waiting = apart(() => second.leader(`turn-${wait}`).acquire({ wait }));
    await until("the second to wait", async () => (await waiters("leader", `turn-${wait}`)) === 1);
    await held.release();
    await using hold = await waiting;
    assert.ok(hold.isHeld() && hold.token > held.token);
  });

  test(`a wait of ${wait ?? "any length"} ends with its signal, and leaves no waiter`, async () => {
    await using _hold = await first.leader(`abort-${wait}`).acquire();
    const controller = new AbortController();
    const waiting = apart(() => second.leader(`abort-${wait}`).acquire({ wait, signal: controller.signal }));
    await until("the second to wait", async () => (await waiters("leader", `abort-${wait}`)) === 1);
    const reason = new Error("enough");
    controller.abort(reason);
    await assert.rejects(waiting, reason);
    await until("the waiter to go", async () => (await waiters("leader", `abort-${wait}`)) === 0);
  });
}

test("a task that asks for what it holds is told which hold that is", async () => {
  for (const resource of [first.leader("self"), first.lease("self"), first.master()]) {
    const hold = await resource.acquire();
    for (const wait of [0, "1h", undefined]) {
      await assert.rejects(resource.acquire({ wait }), (error) => error instanceof Busy && error.heldBySelf && error.holder?.hold === hold.id);
    }
    await hold.release();
    await (await resource.acquire()).release();
  }
});

test("permits are as many as the limit says", async () => {
  const gpu = first.semaphore("gpu", { limit: 2 });
  const [one, two] = [await gpu.acquire(), await gpu.acquire()];
  assert.equal(one.limit, 2);
  await assert.rejects(gpu.acquire({ wait: 0 }), Busy);
  const three = await first.semaphore("gpu", { limit: 3 }).acquire({ wait: 0 });
  assert.deepEqual(three.limitChanged, { from: 2, to: 3 });
  await Promise.all([one, two, three].map((hold) => hold.release()));
});

test("a wrapped function runs as often at once as the limit says", async () => {
  let running = 0;
  let most = 0;
  const encode = first.semaphore("encoders", { limit: 2 }).wrap(async (file: string) => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, 5));
    running--;
    return file.toUpperCase();
  });
  assert.deepEqual(await Promise.all(["a", "b", "c", "d", "e"].map((file) => encode(file))), ["A", "B", "C", "D", "E"]);
  assert.equal(most, 2);
});

test("work that ends gives the hold back, and its result", async () => {
  const token = await first.leader("run").run(({ token, signal }) => {
    assert.equal(signal.aborted, false);
    return token;
  });
  assert.equal(typeof token, "bigint");
  await assert.rejects(first.leader("run").run(() => Promise.reject(new RangeError("mine"))), RangeError);
  assert.equal((await first.standing("leader", "run")).holding, 0);
});

test("a loss aborts the work, and is its outcome", async () => {
  const seen: unknown[] = [];
  const work = first.leader("revoked").run(async ({ signal }) => {
    const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
    await first.revoke({ kind: "leader", name: "revoked" });
    await aborted;
    seen.push(signal.reason);
    signal.throwIfAborted();
  });
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof Lost && error.reason === "revoked");
    assert.match(error.message, /leader\/revoked with token \d+ was lost: revoked by root on \S+; stop/);
    seen.push(error);
    return true;
  });
  await until("the work to see it", () => seen.length === 2);
  assert.equal(seen[0], seen[1], "the signal has the loss as its reason");
});

test("a loss is told at once to whoever runs work that does not stop", async () => {
  const endless = new Promise<never>(() => {});
  const work = first.leader("endless").run(async () => {
    await first.revoke({ kind: "leader", name: "endless" });
    return endless;
  });
  await assert.rejects(work, Lost);
});

test("work that ended by itself after the loss has lost", async () => {
  const work = first.leader("late").run(async (hold) => {
    await first.revoke({ kind: "leader", name: "late" });
    await hold.lost();
    return "done";
  });
  await assert.rejects(work, Lost);
});

test("a foreign cancellation is no loss: the work stops, then the hold is given back", async () => {
  const controller = new AbortController();
  const reason = new Error("shutting down");
  let heldAtTheEnd = false;
  const work = first.leader("cancelled").run(
    async (hold) => {
      controller.abort(reason);
      assert.equal(hold.signal.reason, reason);
      await new Promise((resolve) => setTimeout(resolve, 20));
      heldAtTheEnd = hold.isHeld();
    },
    { signal: controller.signal },
  );
  await assert.rejects(work, reason);
  assert.equal(heldAtTheEnd, true, "stopped comes before released");
  assert.equal((await first.standing("leader", "cancelled")).holding, 0);
});

test("a grant costs the same however many holds there are", async (context) => {
  await using session = await first.session({ holds: 100 });
  const { mock: readings } = context.mock.method(Page.prototype, "validUntil");
  await Promise.all(Array.from({ length: 100 }, (_, index) => session.leader(`many-${index}`).acquire()));
  // A few for each grant, and all of them once a second. To look at all of them at every grant is 8,000.
  assert.ok(readings.callCount() < 2500, `${readings.callCount()} readings`);
});

test("a campaign sees every term, until its signal", async () => {
  const controller = new AbortController();
  const reason = new Error("enough");
  const tokens: bigint[] = [];
  const campaign = async (): Promise<void> => {
    for await (const term of first.leader("terms").campaign({ signal: controller.signal })) {
      tokens.push(term.token);
      if (tokens.length === 1) continue;
      if (tokens.length === 4) controller.abort(reason);
      else {
        await second.revoke({ kind: "leader", name: "terms" });
        await term.lost();
      }
      assert.equal(term.signal.aborted, true);
      assert.equal(term.signal.reason instanceof Lost ? term.signal.reason.reason : term.signal.reason, tokens.length === 4 ? reason : "revoked");
    }
  };
  await assert.rejects(campaign(), reason);
  assert.deepEqual(tokens, [...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)));
  assert.equal(tokens.length, 4);
  assert.equal((await first.standing("leader", "terms")).holding, 0);
});

test("leaving a campaign resigns", async () => {
  for await (const term of first.leader("resign").campaign()) {
    assert.ok(term.isHeld());
    break;
  }
  assert.equal((await first.standing("leader", "resign")).holding, 0);
});

test("events come in order, as a union by type", async () => {
  await using session = await first.session({ name: "events" });
  const events = session.events();
  const next = async (): Promise<Event> => (await events.next()).value as Event;
  const hold = await session.leader("told").acquire();
  // Opened before the session was ours to read: the snapshot may be over.
  let event = await next();
  if (event.type === "snapshot") event = await next();
  assert.ok(event.type === "granted" && event.token === hold.token && event.hold === hold.id);
  await first.revoke({ kind: "leader", name: "told", token: hold.token });
  event = await next();
  assert.ok(event.type === "lost" && event.reason === "revoked");
  await session.close();
  assert.equal((await events.next()).done, true);
});

test("a session that is closed loses its holds, and says so", async () => {
  const session = await first.session();
  const hold = await session.leader("closed").acquire();
  await session.close();
  assert.ok(session.state instanceof SessionGone);
  assert.equal((await hold.lost())?.reason, "session_gone");
  await assert.rejects(session.leader("closed").acquire(), SessionGone);
  await using again = await second.leader("closed").acquire({ wait: 0 });
  assert.ok(again instanceof Hold);
});

test("a refusal has the agent's code and words", async () => {
  await assert.rejects(first.leader("").acquire(), (error) => error instanceof Refused && error.problem.code === "invalid" && error.problem.field === "name");
  assert.throws(() => first.leader("x", { ttl: "soon" }), TypeError);
});

test("without an agent the error says where it was looked for", async () => {
  const nobody = new Tenure({ socket: `${agent.socket}.none` });
  await assert.rejects(nobody.leader("x").acquire(), (error) => {
    assert.ok(error instanceof AgentUnavailable && error.code === "ENOENT");
    assert.match(error.message, /no agent socket at .*api\.sock\.none: start the agent with `tenured`/);
    return true;
  });
});

test("fake timers of a test stop nothing that the agent tells", async (context) => {
  await using _open = await first.leader("open").acquire();
  context.mock.timers.enable({ apis: ["setTimeout", "setInterval", "setImmediate", "Date"] });
  const hold = await first.leader("fake").acquire({ wait: "10s" });
  assert.equal(await first.leader("fake once").run((once) => once.isHeld(), { wait: 0 }), true);
  // A day of the test's own, in which no hold ends; calls that are under way would.
  context.mock.timers.tick(24 * 60 * 60 * 1000);
  hold.check();
  const waiting = apart(() => second.leader("fake").acquire());
  while ((await waiters("leader", "fake")) === 0);
  await hold.release();
  const next = await waiting;
  assert.ok(next.isHeld() && !next.signal.aborted);
  const work = next.guard(() => new Promise(() => {}));
  const rejected = assert.rejects(work, (error) => error instanceof Lost && error.reason === "revoked");
  await first.revoke({ kind: "leader", name: "fake" });
  await rejected;
  assert.equal(next.signal.aborted, true);
  await assert.rejects(next.release(), Lost);
});

// The classes for programs that come from other packages, next to those packages where npm has them.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Lost, Tenure } from "tenure";
import { ExecutionError, Redlock, ResourceLockedError, type RedlockAbortSignal } from "tenure/compat";
import { startAgent, type TestAgent } from "tenure/testing";

import { Redis } from "./redis.js";
import { until } from "./until.js";

const PACKAGES = fileURLToPath(new URL("../tests/packages/node_modules", import.meta.url));
const ROUNDS = 8;

let agent: TestAgent;
let tenure: Tenure;
before(async () => {
  agent = await startAgent();
  tenure = new Tenure({ socket: agent.socket });
});
after(async () => {
  await agent.close();
});

const redlock = (settings = {}): Redlock => new Redlock([], settings, tenure);

test("a lock is held, extended and given back", async () => {
  const lock = await redlock().acquire(["b", "leader:a", "b"], 5000);
  assert.deepEqual(lock.resources, ["b", "leader:a", "b"]);
  assert.ok(lock.expiration > Date.now() && BigInt(lock.value) > 0n);
  assert.equal(await lock.extend(5000), lock);
  assert.equal((await tenure.standing("leader", "a")).holding, 1);
  await lock.release();
  assert.equal(lock.signal.aborted, false);
  assert.equal((await tenure.standing("leader", "a")).holding, 0);
  await assert.rejects(lock.release(), ExecutionError);
});

test("names with and without the prefix are the same, and any duration will do", async () => {
  for (const duration of [1, 5000, 10 ** 12]) {
    const lock = await redlock().acquire(["same", "leader:same"], duration);
    assert.equal((await tenure.standing("leader", "same")).holding, 1);
    await lock.release();
  }
});

test("locks in turn share a session, which quit ends", async () => {
  const mine = redlock();
  const before = (await tenure.agents())[0]?.sessions ?? 0;
  for (const name of ["one", "two", "one"]) await mine.using([name], 5000, async () => {});
  assert.equal((await tenure.agents())[0]?.sessions, before + 1);
  await mine.quit();
  assert.equal((await tenure.agents())[0]?.sessions, before);
});

test("two locks of one program exclude each other, and the second waits", async () => {
  const first = await redlock().acquire(["one"], 5000);
  await assert.rejects(redlock({ retryCount: 0 }).acquire(["one"], 5000), (error) => error instanceof ExecutionError && error.cause instanceof ResourceLockedError);
  await assert.rejects(redlock().acquire(["other", "one"], 5000, { retryCount: 2, retryDelay: 20 }), ExecutionError);
  assert.equal((await tenure.standing("leader", "other")).holding, 0);
  const waiting = redlock({ retryCount: -1 }).acquire(["one"], 5000);
  await until("the second to wait", async () => (await tenure.standing("leader", "one")).waiting === 1);
  await first.release();
  await (await waiting).release();
});

test("what uses a lock is told of its loss", async () => {
  const using = redlock().using(["lost"], 5000, async (signal: RedlockAbortSignal) => {
    assert.ok(!signal.aborted);
    await tenure.revoke({ kind: "leader", name: "lost" });
    await until("the signal", () => signal.aborted);
    assert.ok(signal.error instanceof ExecutionError && signal.error.cause instanceof Lost);
    return "done";
  });
  await assert.rejects(using, (error) => error instanceof ExecutionError && error.cause instanceof Lost && error.cause.reason === "revoked");
  assert.equal(await redlock().using(["kept"], 5000, { retryCount: 1 }, async () => "done"), "done");
  await assert.rejects(redlock().using(["kept"], 5000, async () => Promise.reject(new RangeError("mine"))), RangeError);
  assert.equal((await tenure.standing("leader", "kept")).holding, 0);
});

/** What a program of redlock needs of it. */
interface AnyRedlock {
  using<T>(resources: string[], duration: number, routine: (signal: AbortSignal) => Promise<T>): Promise<T>;
}

test("programs move from redlock one by one", { skip: existsSync(`${PACKAGES}/redlock`) ? false : "npm's redlock is not there" }, async () => {
  await using redis = await Redis.start();
  await using shared = await startAgent({ upstream: redis.url });
  const load = async (name: string): Promise<{ default: new (...from: unknown[]) => unknown }> => import(`${PACKAGES}/${name}`);
  const theirs = (await load("redlock/dist/esm/index.js")).default as new (clients: unknown[], settings: object) => AnyRedlock;
  const client = new (await load("ioredis/built/index.js")).default(redis.url) as { quit(): Promise<void> };

  let inside = 0;
  const done: string[] = [];
  const program = async (name: string, lock: AnyRedlock): Promise<void> => {
    for (let round = 0; round < ROUNDS; round++) {
      await lock.using(["leader:nightly"], 5000, async () => {
        inside++;
        assert.equal(inside, 1, "somebody else is inside");
        await new Promise((resolve) => setTimeout(resolve, 5));
        inside--;
        done.push(name);
      });
    }
  };
  const settings = { retryCount: -1, retryDelay: 10, retryJitter: 5 };
  const own = new Redlock([client], settings, new Tenure({ socket: shared.socket }));
  await Promise.all([
    program("theirs 1", new theirs([client], settings)),
    program("theirs 2", new theirs([client], settings)),
    program("ours 1", own),
    program("ours 2", own),
  ]);
  assert.equal(done.length, 4 * ROUNDS);
  await client.quit();
});

// Tasks of one program wait for each other, and are told at once what they hold themselves.

import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { once } from "node:events";
import { Agent, createServer, get, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";

import { Busy, Lost, Refused, Tenure, WaitTimeout, type AcquireOptions, type Hold, type Kind, type Resource, type Session } from "tenure";
import { Redlock } from "tenure/compat";
import { startAgent, type TestAgent } from "tenure/testing";

import { Client } from "../dist/client/client.js";
import { Claim, enter } from "../dist/task.js";
import { apart } from "./apart.js";
import { until } from "./until.js";

const TASKS = 8;
const ROUNDS = 10_000;
/** Waits with and without a limit, which use two requests. */
const WAITS: readonly AcquireOptions[] = [{ wait: "1h" }, {}];

let agent: TestAgent;
let tenure: Tenure;
let another: Tenure;
before(async () => {
  agent = await startAgent();
  tenure = new Tenure({ socket: agent.socket, name: "tasks" });
  another = new Tenure({ socket: agent.socket, name: "another session" });
});
after(async () => {
  await agent.close();
});

async function untilWaiting(kind: Kind, name: string, count: number): Promise<void> {
  await until(`${count} to wait`, async () => (await tenure.standing(kind, name)).waiting === count);
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function assertHeldBySelf(work: Promise<unknown>): Promise<void> {
  await assert.rejects(work, (error) => error instanceof Busy && !(error instanceof WaitTimeout) && error.heldBySelf);
}

/** Work that notes its token, and checks that no other task is inside. */
function alone(tokens: bigint[]): (hold: Hold) => Promise<void> {
  let inside = 0;
  return async ({ token }) => {
    assert.equal(++inside, 1);
    await turn();
    tokens.push(token);
    assert.equal(--inside, 0);
  };
}

function assertRising(tokens: readonly bigint[]): void {
  assert.equal(tokens.length, TASKS);
  assert.deepEqual(tokens, [...new Set(tokens)].sort((one, other) => (one < other ? -1 : 1)));
}

for (const kind of ["leader", "lease", "master"] as const) {
  for (const options of WAITS) {
    test(`tasks run one at a time with a ${kind}, and a wait of ${options.wait ?? "any length"}`, async () => {
      const tokens: bigint[] = [];
      const resource = kind === "master" ? tenure.master() : tenure[kind](`eight-${options.wait}`);
      const work = alone(tokens);
      await Promise.all(Array.from({ length: TASKS }, () => resource.run(work, options)));
      assertRising(tokens);
    });
  }
}

test("a wrapped function that is called eight times at once runs eight times", async () => {
  const tokens: bigint[] = [];
  const work = alone(tokens);
  let calls = 0n;
  const wrapped = tenure.leader("wrapped").wrap(() => work({ token: calls++ } as Hold));
  await Promise.all(Array.from({ length: TASKS }, wrapped));
  assertRising(tokens);
});

test("calls of acquire at once are granted in turn", async () => {
  const tokens: bigint[] = [];
  const work = alone(tokens);
  const calls = Array.from({ length: TASKS }, async () => {
    const hold = await tenure.leader("acquired").acquire();
    await work(hold);
    await hold.release();
  });
  await Promise.all(calls);
  assertRising(tokens);
});

test("tasks are granted in the order of their calls", async () => {
  const leader = tenure.leader("order");
  const order: number[] = [];
  const held = await leader.acquire();
  const all: Promise<unknown>[] = [];
  for (let index = 0; index < TASKS; index++) {
    all.push(apart(() => leader.run(() => order.push(index), WAITS[index % 2])));
    await untilWaiting("leader", "order", index + 1);
  }
  assert.deepEqual(order, []);
  await held.release();
  await Promise.all(all);
  assert.deepEqual(order, all.map((_, index) => index));
});

test("a task's wait ends when it said, and leaves no place", async () => {
  await using _held = await tenure.leader("short").acquire();
  await assert.rejects(
    apart(() => tenure.leader("short").acquire({ wait: "50ms" })),
    (error) => error instanceof WaitTimeout && !error.heldBySelf && error.holder?.name === "tasks",
  );
  await untilWaiting("leader", "short", 0);
});

for (const options of WAITS) {
  test(`a task's wait of ${options.wait ?? "any length"} that is aborted leaves no place`, async () => {
    const leader = tenure.leader(`aborted-${options.wait}`);
    const held = await leader.acquire();
    const controller = new AbortController();
    const aborted = apart(() => leader.acquire({ ...options, signal: controller.signal }));
    await untilWaiting("leader", held.name, 1);
    const next = apart(() => leader.acquire(options));
    await untilWaiting("leader", held.name, 2);
    const reason = new Error("enough");
    controller.abort(reason);
    await assert.rejects(aborted, reason);
    await untilWaiting("leader", held.name, 1);
    await held.release();
    await (await next).release();
  });

  test(`a loss frees the tasks that wait, for ${options.wait ?? "any length"}`, async () => {
    const leader = tenure.leader(`lost-${options.wait}`);
    const held = await leader.acquire();
    const waiting = apart(() => leader.acquire(options));
    await untilWaiting("leader", held.name, 1);
    await tenure.revoke({ kind: "leader", name: held.name });
    const next = await waiting;
    assert.ok(next.token > held.token && next.isHeld());
    await assert.rejects(held.release(), Lost);
    // The task has lost it, and waits like any other.
    const again = (options.wait === undefined ? another : tenure).leader(held.name).acquire(options);
    await untilWaiting("leader", held.name, 1);
    await next.release();
    await (await again).release();
  });
}

test("an older agent, which does not let tasks of one session wait, has it busy", async (context) => {
  await using _held = await tenure.leader("older").acquire();
  const ask = Client.prototype.acquire;
  context.mock.method(Client.prototype, "acquire", async function (this: Client, ...args: Parameters<typeof ask>) {
    if (!args[0].behindOwn) return ask.apply(this, args);
    throw new Refused({ type: "", title: "", status: 422, code: "invalid", detail: "unknown field", field: "behind_own" });
  });
  for (const options of WAITS) {
    await assert.rejects(apart(() => tenure.leader("older").acquire(options)), (error) => error instanceof Busy && !error.heldBySelf);
  }
});

test("a single try of another task is busy, not held by itself", async () => {
  await using held = await tenure.leader("once").acquire();
  await assert.rejects(
    apart(() => tenure.leader("once").acquire({ wait: 0 })),
    (error) => error instanceof Busy && !error.heldBySelf && error.holder?.hold === held.id,
  );
});

/** A task, a task in a task, a reader of terms: each with what it holds. */
const HOLDERS: Readonly<Record<string, (resource: Resource, inside: () => Promise<void>) => Promise<void>>> = {
  acquire: async (resource, inside) => {
    await using _hold = await resource.acquire();
    await inside();
  },
  "acquire by a function of its own": async (resource, inside) => {
    const lock = async (): Promise<Hold> => resource.acquire({ wait: "1h" });
    await using _hold = await lock();
    await turn();
    await inside();
  },
  run: (resource, inside) => resource.run(inside),
  wrap: (resource, inside) => resource.wrap(async () => tenure.leader("of another name").run(inside))(),
  "the first term of a campaign": async (resource, inside) => {
    for await (const _term of resource.campaign()) return await inside();
  },
  "the second term of a campaign": async (resource, inside) => {
    let terms = 0;
    for await (const _term of resource.campaign()) if (++terms === 2) return await inside();
  },
};

for (const [how, holder] of Object.entries(HOLDERS)) {
  test(`a task that asks for what it holds by ${how} is told so at once`, async () => {
    for (const resource of [tenure.leader("self"), tenure.lease("self"), tenure.master()]) {
      await holder(resource, async () => {
        for (const wait of [0, "1h", undefined]) {
          await assertHeldBySelf(resource.acquire({ wait }));
          await assertHeldBySelf(resource.run(() => {}, { wait }));
          await assertHeldBySelf(resource.campaign().next());
        }
      });
      await resource.run(() => {}, { wait: 0 });
    }
  });
}

test("a task that asks for what it holds by another session is told so at once", async () => {
  await another.leader("twice").run(async () => {
    for (const wait of [0, "1h", undefined]) await assertHeldBySelf(tenure.leader("twice").acquire({ wait }));
    // Another tenant's is another leader.
    const tenant = new Tenure({ socket: agent.socket, tenant: "other" });
    await tenant.leader("twice").run(() => {}, { wait: 0 });
    const waiting = apart(() => tenure.leader("twice").acquire({ wait: "50ms" }));
    await assert.rejects(waiting, (error) => error instanceof WaitTimeout && !error.heldBySelf);
  });
});

test("a master of a higher priority preempts, also one of its own task", async () => {
  const [low, high] = await Promise.all([1, 2].map(() => tenure.session({ project: "priorities" })));
  await using lower = await (low as Session).master({ priority: 1 }).acquire();
  await assertHeldBySelf((high as Session).master().acquire());
  await using higher = await (high as Session).master({ priority: 2 }).acquire();
  assert.ok(higher.isHeld() && !lower.isHeld());
});

test("a task that began before the hold waits for it, and so does its timer", async () => {
  const leader = tenure.leader("before");
  let go = (): void => {};
  const gate = new Promise<void>((resolve) => (go = resolve));
  const task = (async () => {
    await gate;
    return leader.acquire();
  })();
  let isTime = false;
  const timer = new Promise<Hold>((resolve) => {
    const look = setInterval(() => {
      if (!isTime) return;
      clearInterval(look);
      leader.acquire().then(resolve);
    }, 1);
  });
  const held = await leader.acquire();
  go();
  await untilWaiting("leader", "before", 1);
  isTime = true;
  await untilWaiting("leader", "before", 2);
  await held.release();
  await (await task).release();
  await (await timer).release();
});

test("a task that asked for a permit first waits for one that began with it", async () => {
  const [leader, permits] = [tenure.leader("together"), tenure.semaphore("together", { limit: 2 })];
  const holder = async (): Promise<void> => {
    await using _hold = await leader.acquire();
    await untilWaiting("leader", "together", 2);
  };
  const other = async (): Promise<void> => {
    await using _permit = await permits.acquire();
    await using _hold = await leader.acquire();
  };
  const third = (): Promise<void> =>
    permits.run(async () => {
      await untilWaiting("leader", "together", 1);
      await leader.run(() => {});
    });
  await Promise.all([holder(), third(), other()]);
});

test("a call of an interval waits for what an earlier one holds", async () => {
  const leader = tenure.leader("late call");
  let isWanted = true;
  const calls: Promise<Hold>[] = [];
  const interval = setInterval(() => {
    if (!isWanted) return;
    isWanted = false;
    calls.push(leader.acquire());
  }, 1);
  const first = await (await until("the first call", () => calls[0]));
  isWanted = true;
  await untilWaiting("leader", "late call", 1);
  clearInterval(interval);
  await first.release();
  await (await (calls[1] as Promise<Hold>)).release();
});

test("requests of one connection are tasks of their own", async () => {
  const leader = tenure.leader("connection");
  const seen: Promise<Hold>[] = [];
  const server = createServer(async (_request, response) => {
    const asked = leader.acquire();
    seen.push(asked);
    // The answer goes out before the hold is given back.
    if (seen.length === 1) await asked;
    response.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const client = new Agent({ keepAlive: true, maxSockets: 1 });
  const ports = new Set<number | undefined>();
  for (let requests = 0; requests < 2; requests++) {
    const [reply] = (await once(get({ port, host: "127.0.0.1", agent: client }), "response")) as [IncomingMessage];
    ports.add(reply.socket.localPort);
    await once(reply.resume(), "end");
  }
  assert.equal(ports.size, 1);
  const [first, second] = seen as [Promise<Hold>, Promise<Hold>];
  await untilWaiting("leader", "connection", 1);
  await (await first).release();
  await (await second).release();
  client.destroy();
  server.close();
});

test("tasks that begin at once are not taken for each other when some give up", async () => {
  const leader = tenure.leader("beside");
  let givenUp = 0;
  const task = async (): Promise<void> => {
    for (;;) {
      try {
        await using _hold = await leader.acquire({ wait: "20ms" });
        // All others have given up once, and ask again meanwhile.
        return void (await until("others to give up again", () => givenUp >= 2 * TASKS));
      } catch (error) {
        if (!(error instanceof WaitTimeout)) throw error;
        givenUp++;
      }
    }
  };
  await Promise.all(Array.from({ length: TASKS }, task));
});

test("a listener of a loss is no part of the task that opened the session", async () => {
  const opened = new Tenure({ socket: agent.socket });
  const kept = await opened.leader("kept").acquire();
  const told = await opened.leader("told").acquire();
  const asked = new Promise<Hold>((resolve, reject) => {
    told.signal.addEventListener("abort", () => opened.leader("kept").acquire().then(resolve, reject));
  });
  await tenure.revoke({ kind: "leader", name: "told" });
  await Promise.race([asked, untilWaiting("leader", "kept", 1)]);
  await kept.release();
  await (await asked).release();
  await opened.close();
});

test("locks of the other classes belong to no task", async () => {
  const redlock = new Redlock([], { retryCount: -1 }, tenure);
  // The session of the first is used again, so that acquire is called at once.
  await (await redlock.acquire(["free"], 5000)).release();
  const lock = await redlock.acquire(["free"], 5000);
  const next = redlock.acquire(["free"], 5000);
  await untilWaiting("leader", "free", 1);
  await lock.release();
  await (await next).release();
  await redlock.quit();
});

test("a loop leaves nothing in its task", async (context) => {
  const { mock: entered } = context.mock.method(AsyncLocalStorage.prototype, "enterWith");
  const sizes = (): number[] => entered.calls.map((call) => (call.arguments[0] as readonly unknown[]).length);
  await using _other = await tenure.leader("other").acquire();
  for (let round = 0; round < 20; round++) await (await tenure.leader("loop").acquire()).release();
  for (let round = 0; round < 20; round++) await assertHeldBySelf(tenure.leader("other").acquire());
  assert.ok(entered.callCount() >= 41 && Math.max(...sizes()) === 2, `${Math.max(...sizes())}`);
  for (let round = 0; round < ROUNDS; round++) {
    enter(new Claim("some"));
    await null;
  }
  assert.equal(Math.max(...sizes()), 2);
});

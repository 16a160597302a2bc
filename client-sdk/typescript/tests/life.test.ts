import assert from "node:assert/strict";
import { execFile, fork } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";

import { Busy, Tenure } from "tenure";
import { startAgent } from "tenure/testing";

import { until } from "./until.js";

const PROGRAM = fileURLToPath(new URL("program.js", import.meta.url));

test("a worker thread has a session of its own, which ends with it", async () => {
  await using agent = await startAgent();
  const tenure = new Tenure({ socket: agent.socket });
  const worker = new Worker(PROGRAM, { argv: [agent.socket], stdout: true });
  const [held] = (await once(worker, "message")) as [string];
  assert.equal(held, "held");
  await assert.rejects(tenure.leader("program").acquire({ wait: 0 }), Busy);
  const waiting = tenure.leader("program").acquire();
  await worker.terminate();
  const hold = await waiting;
  assert.ok(hold.isHeld());
  await hold.release();
});

test("a child process has a session of its own, which ends at once with it", async () => {
  await using agent = await startAgent();
  const tenure = new Tenure({ socket: agent.socket });
  await using mine = await tenure.leader("mine").acquire();
  const child = fork(PROGRAM, [agent.socket]);
  const [held] = (await once(child, "message")) as [string];
  assert.equal(held, "held");
  assert.ok(mine.isHeld());
  const waiting = tenure.leader("program").acquire();
  child.kill("SIGKILL");
  const hold = await waiting;
  assert.ok(hold.isHeld() && mine.isHeld());
  await hold.release();
});

test("a hold does not keep the program running, a wait does", async () => {
  await using agent = await startAgent();
  const tenure = new Tenure({ socket: agent.socket });
  const run = async (script: string): Promise<string> => {
    const text = `import { Tenure } from "tenure"; const tenure = new Tenure({ socket: ${JSON.stringify(agent.socket)} }); ${script}`;
    return (await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", text])).stdout;
  };
  assert.equal(await run(`const hold = await tenure.leader("r").acquire(); console.log(hold.isHeld());`), "true\n");
  const held = await tenure.leader("r").acquire();
  const waiting = run(`console.log((await tenure.leader("r").acquire()).isHeld());`);
  await until("the program to wait", async () => (await tenure.standing("leader", "r")).waiting === 1);
  await held.release();
  assert.equal(await waiting, "true\n");
});

// Tasks that wait for each other; run in every runtime. Says where a task was refused what it holds itself.

import { Busy, Tenure } from "tenure";

import { until } from "./until.js";

const tenure = new Tenure({ socket: process.argv[2] as string });
const leader = tenure.leader("tasks");

async function isOwn(work: Promise<unknown>): Promise<boolean> {
  return work.then(
    () => false,
    (error) => error instanceof Busy && error.heldBySelf,
  );
}

await Promise.all(Array.from({ length: 8 }, () => leader.run(() => new Promise((resolve) => setTimeout(resolve, 1)))));

await leader.run(async () => {
  await new Promise((resolve) => setTimeout(resolve, 1));
  console.log("run", await isOwn(leader.acquire()));
});

const twice = async (): Promise<void> => {
  const hold = await leader.acquire();
  await new Promise((resolve) => setTimeout(resolve, 1));
  console.log("acquire", await isOwn(leader.acquire()));
  await hold.release();
};
await twice();

for await (const _term of leader.campaign()) {
  console.log("campaign", await isOwn(leader.acquire()));
  break;
}

// Calls of an interval are tasks of their own.
const calls: Promise<void>[] = [];
let isHeld = false;
let mayGiveBack = false;
const interval = setInterval(() => {
  if (calls.length === 2) return;
  if (calls.length === 1 && !isHeld) return;
  const call = async (): Promise<void> => {
    const hold = await leader.acquire();
    isHeld = true;
    await until("both calls", () => mayGiveBack);
    await hold.release();
  };
  calls.push(call());
}, 1);
await until("the second call to wait", async () => calls.length === 2 && (await tenure.standing("leader", "tasks")).waiting === 1);
clearInterval(interval);
mayGiveBack = true;
await Promise.all(calls);
console.log("interval", false);
process.exit();

// A contender that uses the TypeScript package: acquires, stays inside for a while, and releases, again and again.
//
// usage: node.mjs SOCKET WITNESS KIND LIMIT NAME [TASKS]
//
// One wait of four is impatient, and is given up; none where several tasks contend. Half of these share a session, and
// each other one has its own. They ask for the leader or for a permit of the semaphore, by chance, if KIND is `either`.
// TENURE_TYPESCRIPT names the built package.

import { request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const { Busy, Tenure, UpstreamUnavailable } = await import(pathToFileURL(process.env.TENURE_TYPESCRIPT));
const [socket, witness, kind, limit, name, tasks] = process.argv.slice(2);

function tell(path, facts) {
  const body = JSON.stringify(facts);
  const headers = { "content-type": "application/json", "content-length": body.length };
  return new Promise((resolve, reject) => {
    const call = request({ socketPath: witness, path, method: "POST", headers }, (answer) => {
      answer.resume().on("end", () => (answer.statusCode === 200 ? resolve() : reject(answer.statusCode)));
    });
    call.on("error", reject).end(body);
  });
}

const begin = (name) => new Tenure({ socket, name, project: "mixed" });
const shared = begin(name);

async function contend(tenure, name, isPatient) {
  const resources = {
    leader: tenure.leader("mixed"),
    semaphore: tenure.semaphore("mixed", { limit: Number(limit) }),
    master: tenure.master(),
  };
  for (;;) {
    const chosen = kind === "either" ? ["leader", "semaphore"][Math.floor(Math.random() * 2)] : kind;
    const own = { kind: chosen, name };
    const resource = resources[chosen];
    const impatient = !isPatient && Math.random() < 0.25;
    let hold;
    try {
      hold = await resource.acquire(impatient ? { wait: 50 } : {});
    } catch (error) {
      // So short a wait may be over before the store has answered.
      if (!impatient || !(error instanceof Busy || error instanceof UpstreamUnavailable)) throw error;
      // Its place may be given back a little later, and must not be taken for that of its next wait.
      while ((await resource.standing()).waiters.some((waiter) => waiter.name === name)) await sleep(5);
      await tell("/gave_up", own);
      continue;
    }
    await tell("/enter", { ...own, pid: process.pid, token: String(hold.token) });
    await sleep(Math.random() * 20);
    if (!hold.isHeld()) {
      await tell("/lost", own);
      continue;
    }
    await tell("/leave", own);
    await hold[Symbol.asyncDispose]();
  }
}

if (tasks === undefined) await contend(shared, name, false);
await Promise.all(
  Array.from({ length: Number(tasks) }, (_, task) => {
    const own = `${name}#${task}`;
    return contend(task < Number(tasks) / 2 ? shared : begin(own), own, true);
  }),
);

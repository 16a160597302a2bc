// A service of several replicas, two of whose loops run on one of them only. SIGTERM stops the loops first and resigns
// then, so that the next replica never works beside this one.

import { setTimeout as sleep } from "node:timers/promises";

import { tenure, type Hold } from "tenure";

const say = (what: string): void => console.log(`${Date.now()} ${what}`);

async function loop(name: string, term: Hold): Promise<void> {
  while (!term.signal.aborted) {
    term.check();
    say(`${name} works with token ${term.token}`);
    await sleep(20, undefined, { signal: term.signal }).catch(() => {});
  }
  // What takes time to stop.
  await sleep(20);
  say(`${name} stopped`);
}

const ending = new AbortController();
process.once("SIGTERM", () => ending.abort());

try {
  for await (const term of tenure.leader("reconciler").campaign({ signal: ending.signal })) {
    say(`leads with token ${term.token}`);
    await Promise.all([loop("watch", term), loop("reconcile", term)]);
    if (ending.signal.aborted) break;
    say(`lost: ${String(term.signal.reason)}`);
  }
} catch (error) {
  if (error !== ending.signal.reason) throw error;
}
say("resigned");

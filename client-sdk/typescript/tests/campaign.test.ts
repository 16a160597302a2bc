import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Tenure, type Hold, type Standing } from "tenure";
import { startAgent, type TestAgent } from "tenure/testing";

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
after(() => agent.close());

const standing = (name: string): Promise<Standing> => first.standing("leader", name);
const revoke = (name: string): Promise<unknown> => first.revoke({ kind: "leader", name });

/** Waits in line from another task, at that place. */
async function inLine(name: string, waiting: number): Promise<{ held: Promise<Hold> }> {
  const held = apart(() => second.leader(name).acquire());
  await until("it to wait", async () => (await standing(name)).waiting === waiting);
  return { held };
}

async function term(campaign: AsyncGenerator<Hold, never, void>): Promise<Hold> {
  return (await campaign.next()).value;
}

/** The token of whoever holds it after that one. */
function tokenAfter(name: string, token: bigint): Promise<bigint> {
  return until("the next holder", async () => {
    const holder = (await standing(name)).holders[0];
    return holder?.token !== undefined && holder.token > token ? holder.token : undefined;
  });
}

test("a campaign stands in line while the work of a lost term ends", async () => {
  const campaign = first.leader("line").campaign();
  const lost = await term(campaign);
  const next = await inLine("line", 1);
  await revoke("line");
  const holder = await next.held;
  // The work goes on: nobody asks for the next term.
  await until("the campaign to wait", async () => (await standing("line")).waiting === 1);
  const later = await inLine("line", 2);
  await holder.release();
  const granted = await tokenAfter("line", holder.token);
  const again = await term(campaign);
  assert.equal(again.token, granted);
  assert.ok(again.isHeld() && again.token > lost.token);
  await campaign.return(undefined as never);
  await (await later.held).release();
});

test("work that does not end keeps the next term from others for one ttl", async () => {
  const campaign = first.leader("endless", { ttl: "2s" }).campaign();
  const lost = await term(campaign);
  await revoke("endless");
  await tokenAfter("endless", lost.token);
  const other = await apart(() => second.leader("endless").acquire());
  assert.equal((await standing("endless")).waiting, 0, "it stands once");
  const again = term(campaign);
  await until("the campaign to wait", async () => (await standing("endless")).waiting === 1);
  await other.release();
  assert.ok((await again).isHeld());
  await campaign.return(undefined as never);
});

test("a campaign that is left leaves the line, and gives back what it was granted", async () => {
  let campaign = first.leader("left").campaign();
  await term(campaign);
  const next = await inLine("left", 1);
  await revoke("left");
  const holder = await next.held;
  await until("the campaign to wait", async () => (await standing("left")).waiting === 1);
  await campaign.return(undefined as never);
  await until("nobody to wait", async () => (await standing("left")).waiting === 0);
  await holder.release();

  const controller = new AbortController();
  campaign = first.leader("left").campaign({ signal: controller.signal });
  const lost = await term(campaign);
  await revoke("left");
  await tokenAfter("left", lost.token);
  controller.abort(new Error("enough"));
  await assert.rejects(campaign.next(), /enough/);
  await until("nobody to hold it", async () => (await standing("left")).holding === 0);
});

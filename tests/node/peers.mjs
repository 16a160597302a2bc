// One client of a lock in JavaScript, told what to do by the benchmark. It speaks like tests/python/peers.py.
//
//     peers.mjs PEER ADDRESS NAME
//
// NODE_PACKAGES names the folder with the packages of package.json, TENURE_TYPESCRIPT the built package of Tenure.

import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.NODE_PACKAGES}/`);
// Longer than any run, so that nothing expires while it is measured.
const TTL_MS = 180_000;
const TASKS = 8;

const PEERS = {
  // As its README uses it, with one server.
  async redlock(url, name) {
    const Redis = require("ioredis");
    const Redlock = require("redlock");
    const redlock = new Redlock([new Redis(url)]);
    let held;
    const patient = new Redlock([new Redis(url)], { retryCount: -1 });
    return {
      turn: async () => (await patient.lock(name, TTL_MS)).unlock(),
      acquire: async () => void (held = await redlock.lock(name, TTL_MS)),
      release: () => held.unlock(),
    };
  },
  // On a file system of this host alone.
  async "proper-lockfile"(directory, name) {
    const lockfile = require("proper-lockfile");
    const file = `${directory}/${name}`;
    mkdirSync(file, { recursive: true });
    let release;
    return {
      acquire: async () => void (release = await lockfile.lock(file)),
      release: () => release(),
    };
  },
  async tenure(socket, name) {
    const { Tenure } = await import(pathToFileURL(process.env.TENURE_TYPESCRIPT));
    const role = new Tenure({ socket }).leader(name);
    let held;
    return {
      acquire: async () => void (held = await role.acquire()),
      release: () => held.release(),
      turn: () => role.run(() => {}),
      isHeld: () => held.isHeld(),
      check: () => held.check(),
    };
  },
  async "tenure-compat"(socket, name) {
    const package_ = await import(pathToFileURL(process.env.TENURE_TYPESCRIPT));
    const { Redlock } = await import(new URL("compat.js", pathToFileURL(process.env.TENURE_TYPESCRIPT)));
    const redlock = new Redlock([], { retryCount: -1 }, new package_.Tenure({ socket }));
    return { turn: async () => (await redlock.acquire([name], TTL_MS)).release() };
  },
};

const now = () => Number(process.hrtime.bigint());

/** The time of one look, ns. */
function look(count, once) {
  const start = now();
  for (let i = 0; i < count; i++) once();
  return (now() - start) / count;
}

async function obey(peer, [what, count]) {
  switch (what) {
    case "pairs": {
      const times = [];
      for (let i = 0; i < Number(count); i++) {
        const start = now();
        await peer.acquire();
        await peer.release();
        times.push((now() - start) / 1000);
      }
      return times;
    }
    case "looks": {
      await peer.acquire();
      const ns = [look(Number(count), peer.isHeld), look(Number(count), peer.check)];
      await peer.release();
      return ns;
    }
    case "turns": {
      const end = performance.now() + Number(count) * 1000;
      let turns = 0;
      const task = async () => {
        for (; performance.now() < end; turns++) await peer.turn();
      };
      await Promise.all(Array.from({ length: TASKS }, task));
      return turns;
    }
    default:
      throw new Error(`not a command: ${what}`);
  }
}

const [peer, ...rest] = process.argv.slice(2);
const made = await PEERS[peer](...rest);
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await obey(made, line.split(" "))));
}
process.exit(0);

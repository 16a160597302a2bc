// Holds a role until it is killed; run as a child process and as a worker thread.

import { parentPort } from "node:worker_threads";

import { Tenure } from "tenure";

const hold = await new Tenure({ socket: process.argv[2] as string }).leader("program").acquire();
const word = hold.isHeld() ? "held" : "not held";
if (parentPort) parentPort.postMessage(word);
else process.send?.(word);
setInterval(() => {}, 1000);

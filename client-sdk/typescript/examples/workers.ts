// Ten jobs in this program, and any number in others: at most three at once, in the whole fleet.

import { tenure } from "tenure";

let inside = 0;
let most = 0;
const encode = tenure.semaphore("encoders", { limit: 3 }).wrap(
  async (file: string) => {
    most = Math.max(most, ++inside);
    await new Promise((resolve) => setTimeout(resolve, 20));
    inside--;
    return `${file}.mp4`;
  },
  { wait: "10m" },
);
const done = await Promise.all(Array.from({ length: 10 }, (_, number) => encode(`film-${number}`)));
console.log(`${done.length} done, at most ${most} at once`);

import { pause } from "./timers.js";

const FIRST_MS = 10;
const LAST_MS = 1000;

/** 10 ms, doubled each time up to 1 s. Without jitter: the agent is on this host. */
export class Backoff {
  #next = FIRST_MS;

  step(): number {
    const step = this.#next;
    this.#next = Math.min(LAST_MS, step * 2);
    return step;
  }

  /** Waits a step, or until `signal` aborts. Does not keep the program running. */
  async wait(signal?: AbortSignal): Promise<void> {
    await pause(this.step(), signal);
  }
}

// A place in line for the next term of a campaign, while the work of a lost one still ends.

import type { Reason } from "../errors.js";
import { pause } from "../timers.js";
import type { Hold } from "./hold.js";

/** After `stalled` the program does not get on; after the others that are not here its session or its agent is gone. */
const REASONS: ReadonlySet<Reason> = new Set(["expired", "preempted", "max_hold", "revoked", "upstream_reset", "conflict", "slept"]);

/**
 * Stands for the next term as soon as the agent tells the loss of the former one. A grant that comes while the work still
 * ends is kept for one ttl at most: others would wait for work that may never end, as they wait for a holder that has
 * died.
 */
export class Standby {
  readonly #next: Promise<Hold | undefined>;
  readonly #joined = new AbortController();

  /** `acquire` ends with the campaign, and so does what it was granted. */
  constructor(former: Hold, acquire: () => Promise<Hold>) {
    // An error is for the caller that asks for the next term: its own attempt meets it again.
    this.#next = this.#stand(former, acquire).catch(() => undefined);
  }

  /** The work of the former term has ended: waits for the next one; undefined if this has no place in line for it. */
  join(): Promise<Hold | undefined> {
    this.#joined.abort();
    return this.#next;
  }

  async #stand(former: Hold, acquire: () => Promise<Hold>): Promise<Hold | undefined> {
    const lost = await Promise.race([former.toldLost(), aborted(this.#joined.signal)]);
    if (this.#joined.signal.aborted || lost === undefined || !REASONS.has(lost.reason)) return undefined;
    const hold = await acquire();
    await Promise.race([aborted(this.#joined.signal), pause(hold.ttlMs, hold.signal)]);
    if (this.#joined.signal.aborted && hold.isShown()) return hold;
    await hold[Symbol.asyncDispose]();
    return undefined;
  }
}

function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    else signal.addEventListener("abort", () => resolve(undefined), { once: true });
  });
}

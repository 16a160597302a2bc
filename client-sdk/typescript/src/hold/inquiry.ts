import { randomUUID } from "node:crypto";

import { Backoff } from "../backoff.js";
import { AgentUnavailable, Refused } from "../errors.js";
import type { Core } from "../session/core.js";
import type { Acquire, Acquired, Waiting } from "../wire.js";

/**
 * One acquire, asked as often as need be under one request id. When its caller goes away while the agent may have
 * granted it, it finds out in the background and gives back what it got, so that no hold is left that nobody knows of.
 */
export class Inquiry {
  readonly #core: Core;
  readonly #acquire: Acquire;
  /** Wait also behind what the session itself holds. Set only where needed: older agents refuse the field. */
  behindOwn = false;
  /** An earlier call may have been granted although its answer never came. */
  #uncertain = false;

  constructor(core: Core, acquire: Omit<Acquire, "session" | "request">) {
    this.#core = core;
    this.#acquire = { ...acquire, session: core.session, request: randomUUID() };
  }

  /** Asks, or asks again. The signal ends a wait that blocks, and leaves the answer to any other in the background. */
  async ask(signal: AbortSignal | undefined, timeoutMs?: number): Promise<Acquired | Waiting> {
    const acquire = { ...this.#acquire, timeoutMs, behindOwn: this.behindOwn || undefined };
    const asking = this.#core.client.acquire(acquire, acquire.wait === "block" ? signal : undefined);
    let left = false;
    const outcome = asking.then(
      (reply) => {
        this.#uncertain = false;
        if (left) void this.#core.releaseInBackground(reply.hold);
        return reply;
      },
      (error: unknown) => {
        // A wait that was cut off may have been granted just before.
        const isCut = left && acquire.wait === "block";
        this.#uncertain = !(error instanceof Refused) && (this.#uncertain || isCut || mayHaveActed(error));
        if (left) this.abandon();
        throw error;
      },
    );
    if (signal === undefined) return outcome;
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        left = true;
        reject(signal.reason);
      };
      signal.addEventListener("abort", abort, { once: true });
      outcome
        .finally(() => signal.removeEventListener("abort", abort))
        .then(resolve, reject);
    });
  }

  /** Nobody asks any more: finds out what came of it. Ends when the agent has answered, or the session is over. */
  abandon(): void {
    if (!this.#uncertain) return;
    this.#uncertain = false;
    void this.#settle();
  }

  async #settle(): Promise<void> {
    const backoff = new Backoff();
    const again: Acquire = { ...this.#acquire, wait: "none", timeoutMs: undefined };
    while (this.#core.gone === undefined) {
      try {
        const reply = await this.#core.client.acquire(again);
        return await this.#core.releaseInBackground(reply.hold);
      } catch (error) {
        if (error instanceof Refused) return;
      }
      await backoff.wait(this.#core.over);
    }
  }
}

/** False if the connection was not even made. */
function mayHaveActed(error: unknown): boolean {
  return error instanceof AgentUnavailable && !error.neverSent;
}

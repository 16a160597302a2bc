import type { Client } from "../client/client.js";
import { deadline } from "../client/deadline.js";
import { SessionGone, isSessionGone } from "../errors.js";
import { outside } from "../task.js";
import type { Register } from "../wire.js";
import { Core } from "./core.js";
import { Subscribers } from "./subscribers.js";

/** A session over its registrations: one at first use, another one when the agent has ended the one before. */
export class Life {
  readonly register: Register;
  readonly subscribers = new Subscribers();
  readonly #connect: () => Client;
  #core: Core | undefined;
  #opening: Promise<Core> | undefined;
  #closed = false;

  constructor(connect: () => Client, register: Register) {
    this.#connect = connect;
    this.register = register;
  }

  /** The path of the agent's socket. */
  get socket(): string {
    return this.#connect().path;
  }

  /** The latest registration. */
  get core(): Core | undefined {
    return this.#core;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** The registration, made now if there is none. Whoever has no patience left does not end it for others. */
  async open(patienceMs?: number): Promise<Core> {
    if (this.#closed) throw new SessionGone("it was closed");
    if (this.#core !== undefined && this.#core.gone === undefined) return this.#core;
    this.#opening ??= outside(async () => {
      try {
        this.#core = await Core.open(this.#connect(), this.register, this.subscribers);
        if (this.#closed) await this.#end(this.#core);
        return this.#core;
      } finally {
        this.#opening = undefined;
      }
    });
    const opening = this.#opening;
    if (patienceMs === undefined) return opening;
    return new Promise((resolve, reject) => {
      const cancel = deadline(patienceMs, () => 0, () => reject(this.#connect().unanswered(patienceMs)));
      opening.then(resolve, reject).finally(cancel);
    });
  }

  /** Ends it for good; its holds are lost before the agent is asked. */
  async close(): Promise<void> {
    this.#closed = true;
    this.subscribers.end();
    await this.#opening?.catch(() => {});
    if (this.#core !== undefined) await this.#end(this.#core);
  }

  async #end(core: Core): Promise<void> {
    if (core.gone !== undefined) return;
    core.end("it was closed");
    try {
      await core.client.release(core.session);
    } catch (error) {
      // The tether ends what the agent could not be told.
      if (!isSessionGone(error)) throw error;
    }
  }
}

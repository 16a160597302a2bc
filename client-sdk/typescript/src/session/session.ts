import type { Client } from "../client/client.js";
import { milliseconds, type Duration } from "../duration.js";
import { Resource, type LeaseOptions, type MasterOptions, type ResourceOptions, type SemaphoreOptions } from "../hold/resource.js";
import type { Checkpointed, Event, Register, Registered, Tether } from "../wire.js";
import type { Core, State } from "./core.js";
import { Life } from "./life.js";

export interface SessionOptions {
  /** The holder's name as people see it; 1–200 bytes. Default: that of the program or script. */
  readonly name?: string;
  /** The kind of program. Default `unknown`. */
  readonly surface?: string;
  /** The tenant in which all names are looked up. Default `default`. */
  readonly tenant?: string;
  /** The project whose master this session may become; naming one announces the session to the project's others. */
  readonly project?: string;
  /** The tie of the session to life. Default `connection`: the event stream that this package keeps open. */
  readonly tether?: Tether;
  /** How long a keepalive tether lasts without `beat`. Default 30 s. */
  readonly keepalive?: Duration;
  /** How long a connection tether outlives its stream while the process lives. Default 3 s. */
  readonly linger?: Duration;
  /** Promises to call `beat` at least this often; a broken promise loses the holds. Default: none. */
  readonly progress?: Duration;
  /** How long the session outlives its last beat upstream. Default 90 s. */
  readonly ttl?: Duration;
  /** How many holds it may have at once, waiting ones counted: 1 to 4095. Default 63. */
  readonly holds?: number;
}

/** The four kinds of resource, and the events of the session that holds them. */
export abstract class Resources implements AsyncDisposable {
  /** @internal */
  protected readonly life: Life;

  /** @internal */
  constructor(life: Life) {
    this.life = life;
  }

  /** The leader of a role: one holder. */
  leader(name: string, options: ResourceOptions = {}): Resource {
    return new Resource(this.life, "leader", name, options);
  }

  /** Permits, first come first served. The limit is stored upstream, and is everybody's. */
  semaphore(name: string, options: SemaphoreOptions = {}): Resource {
    return new Resource(this.life, "semaphore", name, options);
  }

  /** One holder, listed in the routing table with its address, with a time of grace for the former holder. */
  lease(name: string, options: LeaseOptions = {}): Resource {
    return new Resource(this.life, "lease", name, options);
  }

  /** The master of the session's project: one holder, preempted by a higher priority. */
  master(options: MasterOptions = {}): Resource {
    return new Resource(this.life, "master", undefined, options);
  }

  /** The session's events from now on; a reader that leaves 256 of them unread is told how many it missed. */
  events(): AsyncIterableIterator<Event> {
    return this.life.subscribers.subscribe();
  }

  /** Says that the program lives and gets on; see {@link SessionOptions.progress}. */
  async beat(): Promise<void> {
    const core = await this.life.open();
    await core.client.beat(core.session);
  }

  /** Renews everything upstream now. */
  async checkpoint(): Promise<Checkpointed> {
    const core = await this.life.open();
    return core.client.checkpoint(core.session);
  }

  /** Ends the session and releases all its holds; those are lost as `session_gone` before the agent is asked. */
  async close(): Promise<void> {
    await this.life.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/**
 * A program's registration with the agent. It opens its event stream again when that breaks, and takes itself up
 * again when the agent was restarted; holds stay valid meanwhile. When the agent has ended it, its holds are lost,
 * and the next acquire registers again. It ends with `close`, or with the program, which it does not keep running.
 */
export class Session extends Resources {
  /** @internal */
  static async open(client: Client, options: SessionOptions): Promise<Session> {
    const life = new Life(() => client, registration(options));
    await life.open();
    return new Session(life);
  }

  /** Its id; another one after the agent has ended it. */
  get id(): string {
    return this.registered.session;
  }

  /** The agent's answer to the latest registration. */
  get registered(): Registered {
    return this.#core.registered;
  }

  /** `connected`; `reconnecting` (holds stay what their page says); or the error that says why it is gone. */
  get state(): State {
    return this.#core.state;
  }

  get #core(): Core {
    // There is one from `open` on.
    return this.life.core as Core;
  }
}

/** @internal */
export function registration(options: SessionOptions): Register {
  const ms = (duration: Duration | undefined, what: string): number | undefined =>
    duration === undefined ? undefined : milliseconds(duration, what);
  return {
    name: options.name,
    surface: options.surface,
    tenant: options.tenant,
    project: options.project,
    tether: options.tether ?? "connection",
    keepaliveMs: ms(options.keepalive, "keepalive"),
    lingerMs: ms(options.linger, "linger"),
    progressMs: ms(options.progress, "progress"),
    ttlMs: ms(options.ttl, "ttl"),
    holds: options.holds,
  };
}

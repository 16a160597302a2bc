import { Client } from "./client/client.js";
import { Life } from "./session/life.js";
import { Resources, Session, registration, type SessionOptions } from "./session/session.js";
import type { AgentView, History, Kind, Revoke, Revoked, Standing, Why } from "./wire.js";

export interface TenureOptions extends SessionOptions {
  /**
   * The agent's socket: a path or a `unix:` URI. Default: TENURE_SOCKET, else this user's own agent
   * (`$XDG_RUNTIME_DIR/tenured/api.sock`, `/run/user/UID/tenured/api.sock`, `/tmp/tenured-UID/api.sock`) if there is
   * one, else the service (`/run/tenured/api.sock`).
   */
  readonly socket?: string;
}

/**
 * The agent on this host, with one session that all resources share; it is opened by the first of them. A worker
 * thread and a child process have sessions of their own.
 */
export class Tenure extends Resources {
  readonly #options: TenureOptions;
  readonly #connect: () => Client;

  constructor(options: TenureOptions = {}) {
    let client: Client | undefined;
    const connect = (): Client => (client ??= new Client(options.socket));
    super(new Life(connect, registration(options)));
    this.#options = options;
    this.#connect = connect;
  }

  /** A session of its own, with options of its own besides those given to the constructor. */
  async session(options: SessionOptions = {}): Promise<Session> {
    return Session.open(this.#connect(), { ...this.#options, ...options });
  }

  /** Holders and waiters of a resource, across the fleet. A master's name is its project. */
  async standing(kind: Kind, name: string): Promise<Standing> {
    return this.#connect().standing(kind, name, this.#options.tenant);
  }

  /** The last changes of who held a resource, across the fleet, newest first. A master's name is its project. */
  async history(kind: Kind, name: string): Promise<History> {
    return this.#connect().history(kind, name, this.#options.tenant);
  }

  /**
   * All that is held or waited for in the fleet: of a kind, with a name that a glob matches. Read page by page: what
   * comes or goes meanwhile may be missed.
   */
  async list(kind?: Kind, glob?: string): Promise<Standing[]> {
    return this.#connect().list(kind, glob, this.#options.tenant);
  }

  /** Who has a resource, who waits for it, and how it came to that. A master's name is its project. */
  async why(kind: Kind, name: string): Promise<Why> {
    return this.#connect().why(kind, name, this.#options.tenant);
  }

  /** The agents of the same store, this one first. Where rules of the agent bound the caller, this one alone. */
  async agents(): Promise<AgentView[]> {
    return this.#connect().agents();
  }

  /** Takes a resource away from its holders; for root and the agent's own user. */
  async revoke(revoke: Revoke): Promise<Revoked> {
    return this.#connect().revoke(revoke);
  }
}

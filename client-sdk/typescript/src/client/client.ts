import { TenureError, type AgentUnavailable } from "../errors.js";
import {
  parse, stringify, type Acquire, type Acquired, type AgentView, type Agents, type Checkpointed, type History, type Kind, type List,
  type Register, type Registered, type Revoke, type Revoked, type Standing, type Waiting, type Why,
} from "../wire.js";
import { findSocket } from "./socket.js";
import { EventStream } from "./stream.js";
import { Transport } from "./transport.js";

/** How long a call waits for its answer; a blocking acquire has its own time on top. */
const CALL_DEADLINE_MS = 30_000;
/** How long a call that does not wait for its turn waits for its answer: a sound agent needs far less. */
export const TRY_DEADLINE_MS = 5_000;
/** How long after the end of a wait its answer may come. */
const WAIT_GRACE_MS = 2_000;
/** Resources, or agents, that are asked for at once. */
const PAGE_LIMIT = "100";
const STREAM_OPEN_DEADLINE_MS = 10_000;

/** The agent's API, call by call: no state but idle connections. */
export class Client {
  readonly #transport: Transport;

  /** `socket` is a path or a `unix:` URI; without it the agent is looked for. Opens no connection yet. */
  constructor(socket?: string) {
    this.#transport = new Transport(findSocket(socket));
  }

  /** The socket's path. */
  get path(): string {
    return this.#transport.path;
  }

  /** The error of an agent that gave no answer for so long. */
  unanswered(ms: number): AgentUnavailable {
    return this.#transport.broken(Object.assign(new Error("no answer in time"), { code: "ETIMEDOUT" }), ms);
  }

  /** Each registration is a session of its own, so that only a resumption is repeated. */
  async register(register: Register): Promise<Registered> {
    return (await this.#post("/v1/register", register, register.resume !== undefined)) as Registered;
  }

  /** The signal closes the connection, which cancels a blocking wait. A wait without an end is `queue`. */
  async acquire(acquire: Acquire, signal?: AbortSignal): Promise<Acquired | Waiting> {
    return (await this.#post("/v1/acquire", acquire, true, deadlineOf(acquire), signal)) as Acquired | Waiting;
  }

  /** Without a hold the session ends. Returns whether there was something to give back. */
  async release(session: string, hold?: string): Promise<boolean> {
    const reply = await this.#post("/v1/release", { session, hold }, true, TRY_DEADLINE_MS);
    return (reply as { released: boolean }).released;
  }

  async beat(session: string): Promise<void> {
    await this.#post("/v1/beat", { session }, true);
  }

  async checkpoint(session: string): Promise<Checkpointed> {
    return (await this.#post("/v1/checkpoint", { session }, true)) as Checkpointed;
  }

  /** Repeated only with a token: without one the next holder could be hit. */
  async revoke(revoke: Revoke): Promise<Revoked> {
    return (await this.#post("/v1/revoke", revoke, revoke.token !== undefined)) as Revoked;
  }

  async standing(kind: Kind, name: string, tenant?: string): Promise<Standing> {
    return (await this.#get("/v1/standing", { kind, name, tenant })) as Standing;
  }

  /** The last changes of who holds a resource, from every host, newest first. */
  async history(kind: Kind, name: string, tenant?: string): Promise<History> {
    return (await this.#get("/v1/history", { kind, name, tenant })) as History;
  }

  /** Its standing and its history, which may be unknown while the standing is not. */
  async why(kind: Kind, name: string, tenant?: string): Promise<Why> {
    const standing = await this.standing(kind, name, tenant);
    try {
      return { standing, history: (await this.history(kind, name, tenant)).changes };
    } catch (error) {
      if (!(error instanceof TenureError)) throw error;
      return { standing, history: [], unknown: error.message };
    }
  }

  async list(kind?: Kind, glob?: string, tenant?: string): Promise<Standing[]> {
    const pages = await this.#pages<List>("/v1/list", { kind, glob, tenant });
    const all = pages.flatMap(({ resources }) => resources);
    return [...new Map(all.map((one) => [`${one.tenant} ${one.kind} ${one.name}`, one])).values()];
  }

  /** The agents of the same store, this one first. */
  async agents(): Promise<AgentView[]> {
    const pages = await this.#pages<Agents>("/v1/agents", {});
    return [...new Map(pages.flatMap(({ agents }) => agents).map((one) => [one.agent, one])).values()];
  }

  /** With the number of the last event seen only what was missed is told; else a snapshot comes first. */
  async events(session: string, lastEventId?: number): Promise<EventStream> {
    const target = `/v1/events?${new URLSearchParams({ session })}`;
    return EventStream.open(this.#transport, target, lastEventId, STREAM_OPEN_DEADLINE_MS);
  }

  /** What comes or goes between two pages may be missed, or told twice. */
  async #pages<T extends { readonly cursor?: string }>(target: string, query: Readonly<Record<string, string | undefined>>): Promise<T[]> {
    const pages: T[] = [];
    for (let cursor: string | undefined; ; ) {
      const page = (await this.#get(target, { ...query, limit: PAGE_LIMIT, cursor })) as T;
      pages.push(page);
      if (page.cursor === undefined || page.cursor === cursor) return pages;
      cursor = page.cursor;
    }
  }

  async #get(target: string, query: Readonly<Record<string, string | undefined>>): Promise<unknown> {
    const given = Object.entries(query).filter((pair): pair is [string, string] => pair[1] !== undefined);
    const options = { repeatable: true, deadlineMs: CALL_DEADLINE_MS };
    const reply = await this.#transport.call("GET", `${target}?${new URLSearchParams(given)}`, undefined, options);
    return parse(reply.text);
  }

  async #post(target: string, body: object, repeatable: boolean, deadlineMs = CALL_DEADLINE_MS, signal?: AbortSignal): Promise<unknown> {
    const reply = await this.#transport.call("POST", target, stringify(body), { repeatable, deadlineMs, signal });
    return reply.text === "" ? undefined : parse(reply.text);
  }
}

function deadlineOf({ wait, timeoutMs = 0 }: Acquire): number {
  if (wait === "block") return timeoutMs + WAIT_GRACE_MS;
  return wait === "none" ? TRY_DEADLINE_MS : CALL_DEADLINE_MS;
}

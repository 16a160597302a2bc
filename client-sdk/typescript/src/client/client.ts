import {
  parse, stringify, type Acquire, type Acquired, type Checkpointed, type History, type Kind, type List, type Register, type Registered,
  type Revoke, type Revoked, type Standing, type Waiting,
} from "../wire.js";
import { findSocket } from "./socket.js";
import { EventStream } from "./stream.js";
import { Transport } from "./transport.js";

/** How long a call waits for its answer; a blocking acquire has its own time on top. */
const CALL_DEADLINE_MS = 30_000;
/** How long after the end of a wait its answer may come. */
const WAIT_GRACE_MS = 2_000;
/** Resources that are asked for at once. */
const LIST_LIMIT = "100";
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

  /** Each registration is a session of its own, so that only a resumption is repeated. */
  async register(register: Register): Promise<Registered> {
    return (await this.#post("/v1/register", register, register.resume !== undefined)) as Registered;
  }

  /** The signal closes the connection, which cancels a blocking wait. A wait without an end is `queue`. */
  async acquire(acquire: Acquire, signal?: AbortSignal): Promise<Acquired | Waiting> {
    const left = acquire.wait === "block" ? (acquire.timeoutMs ?? 0) + WAIT_GRACE_MS : CALL_DEADLINE_MS;
    return (await this.#post("/v1/acquire", acquire, true, left, signal)) as Acquired | Waiting;
  }

  /** Without a hold the session ends. Returns whether there was something to give back. */
  async release(session: string, hold?: string): Promise<boolean> {
    const reply = await this.#post("/v1/release", { session, hold }, true);
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

  /** Read page by page: what comes or goes meanwhile may be missed. */
  async list(kind?: Kind, glob?: string, tenant?: string): Promise<Standing[]> {
    const all = new Map<string, Standing>();
    for (let cursor: string | undefined; ; ) {
      const page = (await this.#get("/v1/list", { kind, glob, tenant, limit: LIST_LIMIT, cursor })) as List;
      // The agent may tell of one twice, when others came or went between two pages.
      for (const one of page.resources) all.set(`${one.tenant} ${one.kind} ${one.name}`, one);
      if (page.cursor === undefined || page.cursor === cursor) return [...all.values()];
      cursor = page.cursor;
    }
  }

  /** With the number of the last event seen only what was missed is told; else a snapshot comes first. */
  async events(session: string, lastEventId?: number): Promise<EventStream> {
    const target = `/v1/events?${new URLSearchParams({ session })}`;
    return EventStream.open(this.#transport, target, lastEventId, STREAM_OPEN_DEADLINE_MS);
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

// The shapes that travel, in the names of this language: `valid_ms` on the wire is `validMs` here. Ids are
// UUIDs as text; tokens and instants are bigint, since they may not fit into a number.

export type Kind = "master" | "leader" | "lease" | "semaphore";

export type Tether = "connection" | "process" | "keepalive";

export type HoldState = "waiting" | "held" | "jeopardy" | "released" | "lost";

/** Why a hold was lost, in the agent's words. */
export type LostReason =
  | "expired"
  | "preempted"
  | "stalled"
  | "max_hold"
  | "revoked"
  | "upstream_reset"
  | "conflict"
  | "agent_stopping"
  | "slept";

/** The role of a session in its project. */
export type Role = "master" | "peer" | "none";

export type Code =
  | "invalid"
  | "too_large"
  | "unauthorized"
  | "forbidden"
  | "not_found"
  | "method_not_allowed"
  | "session_unknown"
  | "session_lost"
  | "hold_lost"
  | "contended"
  | "wait_timeout"
  | "quota_exceeded"
  | "upstream_unavailable"
  | "stopping";

/** A request changed the limit of a semaphore for everybody. */
export interface LimitChanged {
  readonly from: number;
  readonly to: number;
}

/** A holder of a resource. Process and user are told when they are on this host, or its history knows them. */
export interface Holder {
  readonly host: string;
  readonly name: string;
  /** How long it has been held, ms. */
  readonly sinceMs: number;
  readonly token: bigint;
  readonly pid?: number;
  readonly uid?: number;
  readonly user?: string;
  /** Its command line, cut to 256 bytes. */
  readonly command?: string;
  /** The hold itself, when it is the caller's own. */
  readonly hold?: string;
  /** Its holder has let go, and it is kept from others for so much longer, ms, as `holdAtLeast` asked for. */
  readonly keptMs?: number;
  /** How long ago its holder let go or lost it, ms, where its history tells. */
  readonly endedMs?: number;
}

export interface Waiter {
  readonly host: string;
  readonly name: string;
  /** 1 is next. */
  readonly position: number;
  readonly pid?: number;
  /** How long it has waited, ms. */
  readonly sinceMs: number;
}

/** The holders and waiters of a resource; the first 100 of each. */
export interface Standing {
  readonly tenant: string;
  readonly kind: Kind;
  readonly name: string;
  /** Semaphore only; absent when nobody ever named one. */
  readonly limit?: number;
  readonly holders: readonly Holder[];
  readonly holding: number;
  readonly waiters: readonly Waiter[];
  readonly waiting: number;
  /** Master only: the names of the project's sessions. */
  readonly sessions?: readonly string[];
  readonly members: number;
}

export interface List {
  readonly resources: readonly Standing[];
  readonly cursor?: string;
}

/** One change of who holds a resource. */
export interface HistoryEntry {
  /** How long ago it happened, ms. */
  readonly agoMs: number;
  readonly what: "granted" | "released" | "lost";
  readonly token: bigint;
  readonly host: string;
  /** The name of the holder's session. */
  readonly name: string;
  readonly pid?: number;
  readonly uid?: number;
  readonly user?: string;
  readonly command?: string;
  /** How long it had been held at its end, ms. */
  readonly heldMs?: number;
  /** Why it ended: `released`, `session_ended`, `wait_timeout`, or the reason of a loss. */
  readonly reason?: string;
  /** The same in more words, such as `its process ended`. */
  readonly detail?: string;
  readonly exitStatus?: number;
  /** The user and host that took it away. */
  readonly by?: string;
}

/** The last changes of who holds a resource: newest first, at most 50, of the last 7 days. */
export interface History {
  readonly tenant: string;
  readonly kind: Kind;
  readonly name: string;
  readonly changes: readonly HistoryEntry[];
}

/** Who has a resource and who waits for it, and how it came to that. */
export interface Why {
  readonly standing: Standing;
  /** Newest first. */
  readonly history: readonly HistoryEntry[];
  /** Why the history is not known. */
  readonly unknown?: string;
}

/** An agent of the same store, as it made itself known last. */
export interface AgentView {
  /** Its id: the same until it is stopped. */
  readonly agent: string;
  readonly host: string;
  readonly version: string;
  /** True of the agent on this host, which was asked. */
  readonly this?: boolean;
  /** False if it has not been seen for so long that it is down, stopped, or cut off from the store. */
  readonly seen: boolean;
  /** How long ago it was seen, ms. */
  readonly lastSeenMs: number;
  /** How long it had been up then, ms. */
  readonly upMs: number;
  readonly sessions: number;
  /** What these held. */
  readonly held: number;
  /** What these waited for. */
  readonly waiting: number;
  /** The principal of its key, behind a gateway. */
  readonly principal?: string;
}

export interface Agents {
  readonly agents: readonly AgentView[];
  readonly cursor?: string;
}

/** What every refused request gets: RFC 9457. */
export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly code: Code;
  readonly detail: string;
  readonly field?: string;
  readonly holder?: Holder;
  readonly hold?: string;
  readonly limitChanged?: LimitChanged;
  readonly retryAfterMs?: number;
}

/** A lease's entry in the routing table. */
export interface Attributes {
  /** Such as `10.0.0.7:8982`. */
  readonly address?: string;
  readonly proxyId?: string;
  /** 0–255. Default: CRC-32/IEEE of the name, modulo 256. */
  readonly partition?: number;
  /** A word of the holder's own. Default `active`. */
  readonly status?: string;
}

export interface Register {
  readonly name?: string | undefined;
  readonly surface?: string | undefined;
  readonly tenant?: string | undefined;
  readonly project?: string | undefined;
  readonly tether?: Tether | undefined;
  readonly keepaliveMs?: number | undefined;
  readonly lingerMs?: number | undefined;
  readonly progressMs?: number | undefined;
  readonly ttlMs?: number | undefined;
  readonly guarded?: boolean | undefined;
  readonly holds?: number | undefined;
  readonly resume?: { readonly session: string; readonly secret: string } | undefined;
}

export interface AgentInfo {
  readonly version: string;
  readonly hostId: string;
  /** `embedded`, `redis` or `gateway`. */
  readonly upstream: string;
  readonly guarantee: string;
}

export interface Registered {
  readonly session: string;
  readonly secret: string;
  readonly ttlMs: number;
  readonly beatMs: number;
  readonly page: string;
  readonly bootId: string;
  readonly resumed: boolean;
  readonly agent: AgentInfo;
}

export interface Acquire {
  readonly session: string;
  readonly kind: Kind;
  readonly name?: string | undefined;
  readonly wait: "none" | "block" | "queue";
  /** Wait also behind what the session itself holds; else that is refused as `contended`. */
  readonly behindOwn?: boolean | undefined;
  /** Refused as `forbidden` where the agent's store is this host's alone. Agents of before know no such field. */
  readonly fleet?: true | undefined;
  /** Only with `block` or `queue`; `block` needs it here. */
  readonly timeoutMs?: number | undefined;
  readonly request: string;
  readonly ttlMs?: number | undefined;
  readonly maxHoldMs?: number | undefined;
  readonly holdAtLeastMs?: number | undefined;
  readonly limit?: number | undefined;
  readonly priority?: number | undefined;
  readonly graceMs?: number | undefined;
  readonly attributes?: Attributes | undefined;
}

/** The facts of a grant. */
export interface Grant {
  readonly token: bigint;
  readonly ttlMs: number;
  readonly validMs: number;
  readonly validUntilBoottimeNs: bigint;
  readonly slot: number;
  readonly limit?: number;
  readonly limitChanged?: LimitChanged;
}

export interface Acquired extends Grant {
  readonly hold: string;
  readonly kind: Kind;
  readonly name: string;
  readonly state: "held" | "jeopardy";
}

export interface Waiting {
  readonly hold: string;
  readonly kind: Kind;
  readonly name: string;
  readonly state: "waiting";
  readonly position?: number;
  readonly limitChanged?: LimitChanged;
}

/** A hold as its owner sees it. */
export interface HoldView {
  readonly hold: string;
  readonly kind: Kind;
  readonly name: string;
  readonly state: HoldState;
  /** Absent while waiting. */
  readonly token?: bigint;
  /** How long it has been held, ms; absent while waiting. */
  readonly sinceMs?: number;
  readonly ttlMs: number;
  readonly validMs: number;
  readonly validUntilBoottimeNs: bigint;
  readonly slot: number;
  readonly position?: number;
  readonly limit?: number;
  readonly request?: string;
}

export interface Checkpointed {
  readonly ok: boolean;
  readonly ttlRemainingMs: number;
  readonly role: Role;
  readonly holds: readonly HoldView[];
}

export interface Revoke {
  readonly kind: Kind;
  readonly name: string;
  readonly tenant?: string;
  /** Only the grant with this token. */
  readonly token?: bigint;
  /** Why, for those who lose it and for the logs; 1–200 bytes. */
  readonly reason?: string;
  /** How long the sessions that lose it may not have it again, ms. Default: not at all. */
  readonly forMs?: number;
}

export interface Revoked {
  readonly revoked: number;
  /** Guarded work may go on: how much longer, at most, such grants are kept from others, ms. */
  readonly keptMs?: number;
  /** Those from whom it was taken; the first 100. */
  readonly from?: readonly Holder[];
}

interface OfHold {
  readonly hold: string;
  readonly kind: Kind;
  readonly name: string;
}

/** One event of a session's stream. */
export type Event =
  | { readonly type: "snapshot"; readonly session: string; readonly role: Role; readonly holds: readonly HoldView[] }
  | ({ readonly type: "queued"; readonly position: number } & OfHold)
  | ({ readonly type: "granted" } & OfHold & Grant)
  | ({ readonly type: "jeopardy"; readonly token: bigint; readonly cause: string; readonly validMs: number } & OfHold)
  | ({ readonly type: "safe" } & OfHold & Grant)
  | ({ readonly type: "lost"; readonly token: bigint; readonly reason: LostReason; readonly by?: string; readonly detail?: string } & OfHold)
  | ({
      readonly type: "released";
      readonly token?: bigint;
      readonly cause: "client" | "wait_timeout" | "session_ended";
    } & OfHold)
  | ({ readonly type: "standing" } & Standing)
  | { readonly type: "message"; readonly project: string; readonly direct: boolean; readonly payload: unknown }
  /** Causes: `stopping`, `restarting`, `session_ended`, `lagged`. */
  | { readonly type: "shutdown"; readonly cause: string }
  /** So many events were left unread and are gone. Made here, not by the agent. */
  | { readonly type: "missed"; readonly count: number };

const EVENTS = new Set(["snapshot", "queued", "granted", "jeopardy", "safe", "lost", "released", "standing", "message", "shutdown"]);

/** Reads an event of the stream; undefined for one that this version does not know. */
export function parseEvent(name: string, data: string): Event | undefined {
  if (!EVENTS.has(name)) return undefined;
  if (name === "message") {
    // What other programs say stays as it is.
    return { ...(JSON.parse(data) as object), type: "message" } as Event;
  }
  return { ...(parse(data) as object), type: name } as Event;
}

/** Fields that a number may be too small for. */
const LARGE = new Set(["token", "validUntilBoottimeNs"]);
/** One of them with its value, or any text, so that nothing inside of a text is taken for one. */
const LARGE_FIELD = /"(token|valid_until_boottime_ns)":\s*(\d+)|"(?:[^"\\]|\\.)*"/g;
const QUOTED_TOKEN = /"token":"(\d+)"|"(?:[^"\\]|\\.)*"/g;
/** Names that were translated before; there are as many as the API has, and some more of a later one. */
const NAMES_MAX = 1000;

/** A number was too small for what it was to hold. */
class TooLarge extends Error {}

/** Reads the agent's JSON. */
export function parse(text: string): unknown {
  try {
    return fromWire(JSON.parse(text));
  } catch (error) {
    if (!(error instanceof TooLarge)) throw error;
    const exact = text.replace(LARGE_FIELD, (whole, field?: string, digits?: string) => (field ? `"${field}":"${digits}"` : whole));
    return fromWire(JSON.parse(exact));
  }
}

const inHere = translation((name) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()));
const onWire = translation((name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));

function fromWire(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(fromWire);
  if (typeof value !== "object" || value === null) return value;
  const fields: Record<string, unknown> = {};
  for (const [key, field] of Object.entries(value)) {
    const name = inHere(key);
    define(fields, name, LARGE.has(name) ? large(field) : fromWire(field));
  }
  return fields;
}

function large(value: unknown): unknown {
  if (typeof value === "string") return BigInt(value);
  if (typeof value !== "number") return fromWire(value);
  if (!Number.isSafeInteger(value)) throw new TooLarge();
  return BigInt(value);
}

/** Writes JSON for the agent; what is undefined is left out. */
export function stringify(value: object): string {
  const text = JSON.stringify(toWire(value));
  return text.includes('"token":"') ? text.replace(QUOTED_TOKEN, (whole, digits?: string) => (digits ? `"token":${digits}` : whole)) : text;
}

function toWire(value: unknown): unknown {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return value.map(toWire);
  if (typeof value !== "object" || value === null) return value;
  const fields: Record<string, unknown> = {};
  for (const [key, field] of Object.entries(value)) {
    if (field !== undefined) define(fields, onWire(key), toWire(field));
  }
  return fields;
}

/** Others name some fields, and one of that name must not be taken for the object's kind. */
function define(fields: Record<string, unknown>, name: string, value: unknown): void {
  if (name === "__proto__") Object.defineProperty(fields, name, { value, enumerable: true });
  else fields[name] = value;
}

function translation(translate: (name: string) => string): (name: string) => string {
  const known = new Map<string, string>();
  return (name) => {
    let found = known.get(name);
    if (found === undefined) {
      found = translate(name);
      if (known.size < NAMES_MAX) known.set(name, found);
    }
    return found;
  };
}

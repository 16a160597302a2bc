/// <reference types="node" preserve="true" />

// For programs that come from other packages.

import "./dispose.js";
import { EventEmitter } from "node:events";

import { milliseconds } from "./duration.js";
import { Busy, Lost, TenureError } from "./errors.js";
import type { Hold } from "./hold/hold.js";
import type { Session } from "./session/session.js";
import { outside } from "./task.js";
import { Tenure } from "./tenure.js";

const PREFIX = "leader:";
/** The bounds of the agent for a ttl. */
const TTL_MIN_MS = 300;
const TTL_MAX_MS = 86_400_000;
const IDLE_SESSIONS_MAX = 4;

/** Settings of redlock. Nobody polls and no clock drifts here, so that only those of the wait mean something. */
export interface Settings {
  /** Together with `retryDelay` how long to wait: -1 for ever, 0 to try once. Default 10. */
  readonly retryCount?: number;
  /** ms. Default 200. */
  readonly retryDelay?: number;
  /** Accepted, and means nothing. */
  readonly retryJitter?: number;
  /** Accepted, and means nothing. */
  readonly driftFactor?: number;
  /** Accepted, and means nothing: the agent renews. */
  readonly automaticExtensionThreshold?: number;
}

export type RedlockAbortSignal = AbortSignal & { readonly error?: Error };

/** As redlock's: it was not free in time, or it was lost. The cause says more. */
export class ExecutionError extends TenureError {
  override name = "ExecutionError";
  readonly attempts: readonly Promise<unknown>[] = [];

  constructor(error: Error) {
    super(error.message, { cause: error });
  }
}

/** As redlock's: somebody has it. It is the `cause` of an {@link ExecutionError}. */
export class ResourceLockedError extends TenureError {
  override name = "ResourceLockedError";
}

/**
 * The class of the package redlock, version 5. The clients are not used: whatever the agent's store is, it keeps the
 * locks.
 *
 * The Redis keys are the same: a redlock of the key `leader:NAME` and the leader NAME exclude each other while the
 * agents use that Redis, so that programs can move one by one. A name that begins with `leader:` is taken without it.
 *
 * `duration` is how long a lock outlives its last heartbeat, within the agent's bounds of 300 ms and 24 h. The agent sends those for as long as the program lives,
 * so that a lock does not end by itself after `duration`, and `extend` has nothing to do.
 */
export class Redlock extends EventEmitter {
  readonly settings: Settings;
  readonly #tenure: Tenure;
  readonly #locks = new Set<Lock>();
  /** Sessions that no lock uses. */
  readonly #idle: Session[] = [];

  constructor(_clients: Iterable<unknown> = [], settings: Settings = {}, tenure: Tenure = new Tenure()) {
    super();
    this.settings = settings;
    this.#tenure = tenure;
  }

  /** Waits for all of them, in an order that is the same everywhere. @throws `ExecutionError` */
  async acquire(resources: readonly string[], duration: number, settings: Settings = {}): Promise<Lock> {
    const { retryCount = 10, retryDelay = 200 } = { ...this.settings, ...settings };
    const end = retryCount < 0 ? undefined : performance.now() + milliseconds(retryCount * retryDelay, "retryDelay");
    const ttl = Math.min(Math.max(duration, TTL_MIN_MS), TTL_MAX_MS);
    const names = resources.map((name) => (name.startsWith(PREFIX) ? name.slice(PREFIX.length) : name));
    // Its own while it is held, since two locks of one program exclude each other.
    const session = this.#idle.pop() ?? (await this.#tenure.session());
    const holds: Hold[] = [];
    try {
      for (const name of [...new Set(names)].sort()) {
        const wait = end === undefined ? undefined : retryCount === 0 ? 0 : Math.max(1, end - performance.now());
        // Any task may release a lock: the lock belongs to none.
        holds.push(await outside(() => session.leader(name, { ttl }).acquire({ wait })));
      }
    } catch (error) {
      await Promise.all(holds.map((hold) => hold[Symbol.asyncDispose]()));
      await this.#keep(session);
      throw error instanceof Busy ? new ExecutionError(new ResourceLockedError(error.message, { cause: error })) : error;
    }
    const over = (): Promise<void> => {
      this.#locks.delete(lock);
      return this.#keep(session);
    };
    const lock = new Lock(this, [...resources], holds, over);
    this.#locks.add(lock);
    return lock;
  }

  async #keep(session: Session): Promise<void> {
    if (this.#idle.length < IDLE_SESSIONS_MAX) this.#idle.push(session);
    else await session.close();
  }

  /** As `lock.extend`. */
  async extend(lock: Lock, duration: number): Promise<Lock> {
    return lock.extend(duration);
  }

  /** As `lock.release`. */
  async release(lock: Lock): Promise<void> {
    return lock.release();
  }

  /** Runs `routine` while all are held; its signal aborts at a loss, and has the reason as `error`. */
  async using<T>(resources: readonly string[], duration: number, routine: (signal: RedlockAbortSignal) => Promise<T>): Promise<T>;
  async using<T>(
    resources: readonly string[],
    duration: number,
    settings: Settings,
    routine: (signal: RedlockAbortSignal) => Promise<T>,
  ): Promise<T>;
  async using<T>(
    resources: readonly string[],
    duration: number,
    settings: Settings | ((signal: RedlockAbortSignal) => Promise<T>),
    routine?: (signal: RedlockAbortSignal) => Promise<T>,
  ): Promise<T> {
    const work = typeof settings === "function" ? settings : (routine as (signal: RedlockAbortSignal) => Promise<T>);
    const lock = await this.acquire(resources, duration, typeof settings === "function" ? {} : settings);
    let done: T;
    try {
      done = await work(lock.signal);
    } catch (error) {
      await lock.release().catch(() => {});
      throw error;
    }
    await lock.release();
    return done;
  }

  /** Gives back every lock, and ends the sessions that are kept for those to come. */
  async quit(): Promise<void> {
    await Promise.all([...this.#locks].map((lock) => lock.release().catch(() => {})));
    await Promise.all(this.#idle.splice(0).map((session) => session.close()));
  }
}

/** A lock of {@link Redlock}. */
export class Lock implements AsyncDisposable {
  readonly redlock: Redlock;
  readonly resources: readonly string[];
  readonly attempts: readonly Promise<unknown>[] = [];
  /** Aborts when one of the resources is lost. */
  readonly signal: RedlockAbortSignal;
  readonly #holds: readonly Hold[];
  readonly #over: () => Promise<void>;
  #isReleased = false;

  /** @internal */
  constructor(redlock: Redlock, resources: readonly string[], holds: readonly Hold[], over: () => Promise<void>) {
    this.redlock = redlock;
    this.resources = resources;
    this.#holds = holds;
    this.#over = over;
    const controller = new AbortController();
    this.signal = Object.defineProperty(controller.signal, "error", { get: () => controller.signal.reason as Error | undefined });
    for (const { signal } of holds) {
      const abort = (): void => controller.abort(new ExecutionError(signal.reason as Error));
      if (signal.aborted) abort();
      else signal.addEventListener("abort", abort, { once: true });
    }
  }

  /** The fencing token: greater than every one before. Of several resources the first one's. */
  get value(): string {
    return String(this.#holds[0]?.token ?? 0n);
  }

  /** Until when it is valid unless renewed, ms as `Date.now()`; the agent moves it on. */
  get expiration(): number {
    return Date.now() + Math.min(...this.#holds.map((hold) => hold.validForMs()));
  }

  /** Says whether it is held; the agent renews it. @throws `ExecutionError` when it was lost. */
  async extend(_duration: number): Promise<Lock> {
    for (const hold of this.#holds) execute(() => hold.check());
    return this;
  }

  /** Gives it back. @throws `ExecutionError` when it had been lost, or given back. */
  async release(): Promise<void> {
    if (this.#isReleased) throw new ExecutionError(new TenureError("the lock was given back before; acquire it again"));
    this.#isReleased = true;
    const lost = this.#holds.find((hold) => !hold.isHeld());
    try {
      if (lost !== undefined) execute(() => lost.check());
    } finally {
      await Promise.all(this.#holds.map((hold) => hold[Symbol.asyncDispose]()));
      await this.#over();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isReleased) await this.release();
  }
}

function execute(check: () => void): void {
  try {
    check();
  } catch (error) {
    throw error instanceof Lost ? new ExecutionError(error) : error;
  }
}

export default Redlock;

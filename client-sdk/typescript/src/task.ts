// What the task that runs now, a chain of async calls, has asked for and holds.

import { AsyncLocalStorage, executionAsyncResource } from "node:async_hooks";

import type { Hold } from "./hold/hold.js";

/** An acquire as its task sees it: a wait, and then a hold; of a campaign, one hold after the other. */
export class Claim {
  /** The resource, in the same words for all sessions of this process; undefined for a semaphore, which has many. */
  readonly resource: string | undefined;
  hold: Hold | undefined;

  constructor(resource: string | undefined) {
    this.resource = resource;
  }

  isHeld(): boolean {
    return this.hold?.isShown() === true;
  }
}

const NONE: readonly Claim[] = [];
const storage = new AsyncLocalStorage<readonly Claim[]>();

/** What the task that runs now holds of a resource. */
export function heldByTask(resource: string | undefined): Hold | undefined {
  if (resource === undefined) return undefined;
  return storage.getStore()?.find((claim) => claim.resource === resource && claim.isHeld())?.hold;
}

/** Adds a claim to the task that runs now, for all that it does after this instant. */
export function enter(claim: Claim): void {
  if (typeof storage.enterWith !== "function") return;
  restoreLater();
  storage.enterWith(claim.resource === undefined ? held() : [...held(), claim]);
}

/** Runs `work` as the task that runs now, as it is at this instant. */
export function asCaller<T>(work: () => T): T {
  return storage.run(held(), work);
}

/** Runs `work` as a task that has this claim besides those of the task that runs now. */
export function within<T>(claim: Claim, work: () => T): T {
  return claim.resource === undefined ? work() : storage.run([...held(), claim], work);
}

/** Runs `work`, which is not for the task that runs now alone, as a task that has no claims. */
export function outside<T>(work: () => T): T {
  return storage.run(NONE, work);
}

/**
 * The claims of the task that runs now. One that still waits was made by a task that began a moment ago, and goes its own
 * way: a task that asks one thing after the other would not be here before its grant.
 */
function held(): readonly Claim[] {
  return (storage.getStore() ?? NONE).filter((claim) => claim.isHeld());
}

/** The key under which Node up to 22 keeps a task's claims, in the resource that the task runs in. */
const KEY = (storage as { kResourceStore?: unknown }).kResourceStore;
const entered = new Map<object, readonly Claim[] | undefined>();

/**
 * Up to Node 22 the second call of an interval or a connection finds what the first call entered, though it is another
 * task. So this takes it away as soon as the first call has returned: all that the call awaits has a copy by then.
 */
function restoreLater(): void {
  if (typeof KEY !== "symbol") return;
  const resource = executionAsyncResource() as Record<symbol, unknown>;
  if (entered.has(resource)) return;
  entered.set(resource, storage.getStore());
  queueMicrotask(() => {
    resource[KEY] = entered.get(resource);
    entered.delete(resource);
  });
}

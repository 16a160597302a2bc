import type { Cell } from "../hold/cell.js";
import { END_OF_TIME, earliestNow } from "../page/clock.js";
import { unref } from "../timers.js";
import type { Core } from "./core.js";

/** Timers stand still while the machine sleeps, so that none is trusted for longer, ms. */
const LOOK_AGAIN_MS = 1000;
/** How long a page may say *not held* before the event that tells why, ms. */
const UNTOLD_MAX_MS = 100;

/** Ends holds at their valid-until, whatever the agent says or fails to say. */
export class Warden {
  readonly #core: Core;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(core: Core) {
    this.#core = core;
  }

  /** There is something new to watch. */
  wake(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#core.gone !== undefined) return;
    const next = this.#look();
    if (next === undefined) return;
    // A program that was blocked is first to read what the agent told it meanwhile: an immediate comes after that.
    const timer = setTimeout(() => setImmediate(() => this.#timer === timer && this.wake()), Math.min(Math.ceil(next) + 1, LOOK_AGAIN_MS));
    this.#timer = unref(timer);
  }

  /** Looks at every hold once; returns when to look again, ms, if there is any. */
  #look(): number | undefined {
    let next: number | undefined;
    // The agent's own word comes with a better reason, at the same instant: not before that. The margin of every
    // valid-until is longer than the clock's step.
    const now = earliestNow() ?? END_OF_TIME;
    for (const cell of this.#core.cells) {
      if (cell.stage.is !== "held") continue;
      const at = this.#lookAt(cell, now);
      if (at !== undefined) next = Math.min(next ?? at, at);
    }
    return next;
  }

  /** When to look at the hold again, ms from now; undefined when it is over. */
  #lookAt(cell: Cell, now: bigint): number | undefined {
    const shown = this.#core.validUntil(cell);
    if (shown > now) {
      cell.seenValidUntil = shown;
      cell.doubtedSince = undefined;
      return milliseconds(shown - now);
    }
    const isOver = cell.seenValidUntil <= now;
    if (shown !== 0n || (isOver && this.#core.state !== "connected")) {
      cell.expire();
      return undefined;
    }
    const left = isOver ? 0 : milliseconds(cell.seenValidUntil - now);
    // The page was zeroed: the agent ended it, and an event with the reason is on its way; or a restarted agent
    // gave it another slot, and a snapshot is.
    if (this.#core.state !== "connected") return left;
    cell.doubtedSince ??= performance.now();
    const patience = cell.doubtedSince + UNTOLD_MAX_MS - performance.now();
    if (patience <= 0) {
      if (isOver) cell.expire();
      else cell.lose("forgotten", false);
      return undefined;
    }
    return patience;
  }
}

function milliseconds(ns: bigint): number {
  return Number(ns) / 1e6;
}

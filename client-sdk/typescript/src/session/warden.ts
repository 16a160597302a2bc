import type { Cell } from "../hold/cell.js";
import { END_OF_TIME, earliestNow, latestNow } from "../page/clock.js";
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
  /** When to look at every hold again, ms of `performance.now()`. */
  #due = Infinity;

  constructor(core: Core) {
    this.#core = core;
  }

  /** Looks at a hold that the agent has told something about; the others may be thousands. */
  look(cell: Cell): void {
    if (this.#core.gone !== undefined || cell.stage.is !== "held") return;
    this.#lookAgain(this.#lookAt(cell, this.#now()));
  }

  /** Looks at every hold. */
  lookAtAll(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#due = Infinity;
    if (this.#core.gone !== undefined) return;
    const now = this.#now();
    let next: number | undefined;
    for (const cell of this.#core.cells) {
      if (cell.stage.is !== "held") continue;
      const at = this.#lookAt(cell, now);
      if (at !== undefined) next = Math.min(next ?? at, at);
    }
    this.#lookAgain(next);
  }

  /**
   * The agent's own word comes with a better reason, at the same instant: not before that. The margin of every
   * valid-until is longer than the clock's step.
   */
  #now(): bigint {
    return earliestNow() ?? END_OF_TIME;
  }

  /** Looks at every hold after that many ms, or earlier; undefined for never. */
  #lookAgain(next: number | undefined): void {
    if (next === undefined) return;
    const wait = Math.min(Math.ceil(next) + 1, LOOK_AGAIN_MS);
    const due = performance.now() + wait;
    if (due >= this.#due) return;
    clearTimeout(this.#timer);
    this.#due = due;
    // A program that was blocked is first to read what the agent told it meanwhile: an immediate comes after that.
    const timer = setTimeout(() => setImmediate(() => this.#timer === timer && this.lookAtAll()), wait);
    this.#timer = unref(timer);
  }

  /**
   * Ends a hold that its page was just seen not to show as held, if its valid-until has passed: the program is told that
   * it is over, and it stays so.
   */
  conclude(cell: Cell): void {
    if (cell.stage.is !== "held" || this.#core.shows(cell)) return;
    const shown = this.#core.validUntil(cell);
    const now = latestNow();
    if (shown <= now && this.#isExpired(shown, cell.seenValidUntil <= now)) cell.expire(shown, this.#core.whyExpired());
  }

  /** Of a hold that is not held: false where a better reason is on its way. */
  #isExpired(shown: bigint, isOver: boolean): boolean {
    return shown !== 0n || (isOver && this.#core.state !== "connected");
  }

  /** When to look at the hold again, ms from now; undefined when it is over. */
  #lookAt(cell: Cell, now: bigint): number | undefined {
    let shown = this.#core.validUntil(cell);
    if (shown <= now) {
      this.#core.lookAgain(cell);
      shown = this.#core.validUntil(cell);
    }
    if (shown > now) {
      cell.seenValidUntil = shown;
      cell.doubtedSince = undefined;
      return milliseconds(shown - now);
    }
    const isOver = cell.seenValidUntil <= now;
    if (this.#isExpired(shown, isOver)) {
      cell.expire(shown, this.#core.whyExpired());
      return undefined;
    }
    const left = isOver ? 0 : milliseconds(cell.seenValidUntil - now);
    // The page was zeroed: the agent ended it, and an event with the reason is on its way; or a restarted agent
    // gave it another slot, and a snapshot is.
    if (this.#core.state !== "connected") return left;
    cell.doubtedSince ??= performance.now();
    const patience = cell.doubtedSince + UNTOLD_MAX_MS - performance.now();
    if (patience <= 0) {
      if (isOver) cell.expire(shown, this.#core.whyExpired());
      else cell.lose("forgotten", false);
      return undefined;
    }
    return patience;
  }
}

function milliseconds(ns: bigint): number {
  return Number(ns) / 1e6;
}

import { ClocksDiffer, Lost, isTransient } from "../errors.js";
import { clockDifference, latestNow } from "../page/clock.js";
import type { Core } from "../session/core.js";
import { awake, pause } from "../timers.js";
import type { Grant, Kind, LimitChanged } from "../wire.js";
import type { Cell } from "./cell.js";

/** How long a release waits for the reason of a loss, ms. */
const REASON_MAX_MS = 1000;

/**
 * Something held: leadership of a role, a project's master, a lease, a permit.
 *
 * It is a lease with a fence. Do guarded work only while it {@link isHeld is held}, stop when its {@link signal}
 * aborts, and hand its {@link token} to whatever the work writes to, so that a late write can be refused. Once lost
 * it stays lost. `await using` gives it back.
 */
export class Hold implements AsyncDisposable {
  /** Aborts at the loss, with {@link Lost} as its reason; with the caller's signal, with that signal's reason. */
  readonly signal: AbortSignal;
  readonly #core: Core;
  readonly #cell: Cell;
  readonly #grant: Grant;
  readonly #given: AbortSignal | undefined;

  /** @internal */
  constructor(core: Core, cell: Cell, grant: Grant, given: AbortSignal | undefined) {
    const difference = clockDifference(grant.validMs, grant.validUntilBoottimeNs);
    if (difference !== undefined) {
      giveBack(core, cell);
      throw new ClocksDiffer(difference);
    }
    this.#core = core;
    this.#cell = cell;
    this.#grant = grant;
    this.#given = given;
    core.expectOnPage(cell);
    const controller = new AbortController();
    this.signal = controller.signal;
    const cancel = (): void => controller.abort(given?.reason);
    const look = (): void => {
      if (!cell.isOver) return;
      given?.removeEventListener("abort", cancel);
      stop();
      if (cell.stage.is === "lost") controller.abort(cell.stage.lost);
    };
    const stop = cell.watch(look);
    given?.addEventListener("abort", cancel, { once: true });
    if (given?.aborted) cancel();
    look();
  }

  /** @internal True once the hold is over, even if its page shows otherwise. */
  get isOver(): boolean {
    return this.#cell.isOver;
  }

  /** @internal As {@link isHeld}, also where a restarted agent has made a new page. */
  isShown(): boolean {
    return this.#core.shows(this.#cell);
  }

  /** @internal True if it belongs to this registration. */
  isOf(core: Core | undefined): boolean {
    return this.#core === core;
  }

  get id(): string {
    return this.#cell.id;
  }

  get kind(): Kind {
    return this.#cell.kind;
  }

  /** The name; of a master the project. */
  get name(): string {
    return this.#cell.name;
  }

  /** The fencing token of the grant: greater than every token granted before on the upstream. */
  get token(): bigint {
    return this.#grant.token;
  }

  /** How long the hold outlives its last beat, ms. */
  get ttlMs(): number {
    return this.#grant.ttlMs;
  }

  /** Semaphore only: the permits in all, as of the grant. */
  get limit(): number | undefined {
    return this.#grant.limit;
  }

  /** Semaphore only: asking for this hold changed the limit, for everybody. */
  get limitChanged(): LimitChanged | undefined {
    return this.#grant.limitChanged;
  }

  /**
   * True if it is valid at this instant, by the session's page: two short reads of files, three at the first look after
   * a renewal. Right even when the agent is stopped or this program was. Within 10 ms of the end false already.
   */
  isHeld(): boolean {
    return this.#core.isHeld(this.#cell);
  }

  /** Throws {@link Lost} unless it is valid at this instant; for loops. */
  check(): void {
    if (!this.#core.shows(this.#cell)) throw this.#loss();
  }

  /** How long it is valid from now on unless renewed, ms; 0 when it is not held. */
  validForMs(): number {
    if (this.#cell.stage.is !== "held") return 0;
    const left = this.#core.validUntil(this.#cell) - latestNow();
    return left > 0n ? Number(left) / 1e6 : 0;
  }

  /** Waits for the loss; undefined once it was given back. Keeps the program running meanwhile. */
  lost(): Promise<Lost | undefined> {
    return awake(this.#over().then(({ stage }) => (stage.is === "lost" ? stage.lost : undefined)));
  }

  /** @internal As {@link lost}, but undefined after a loss that the agent does not know of. */
  async toldLost(): Promise<Lost | undefined> {
    const { stage } = await this.#over();
    return stage.is === "lost" && stage.told ? stage.lost : undefined;
  }

  /**
   * Gives it back, so that the next waiter anywhere has it at once. Stop the guarded work before. An agent that
   * cannot be asked is asked again in the background.
   *
   * @throws `Lost` if it had been lost before: what was done since may have met another holder.
   */
  async release(): Promise<void> {
    if (this.#cell.stage.is === "released") return;
    // The page shows it at once; the event with the reason follows within milliseconds.
    if (!this.#core.shows(this.#cell)) await Promise.race([this.lost(), pause(REASON_MAX_MS)]);
    await giveBack(this.#core, this.#cell);
    if (this.#cell.stage.is === "lost") throw this.#cell.stage.lost;
  }

  /** Gives it back; a loss is no error here, since `check`, `signal` and `guard` tell of it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch((error: unknown) => {
      if (!(error instanceof Lost)) throw error;
    });
  }

  /**
   * Runs `work` while it is held; does not give it back. Rejects with {@link Lost} at the loss, without waiting for
   * work that goes on; with the reason of the caller's signal once the work has stopped because of that.
   */
  async guard<T>(work: (hold: Hold) => T | PromiseLike<T>): Promise<T> {
    const outcome = (async () => work(this))().then(
      (value) => ({ value }),
      (error: unknown) => ({ error }),
    );
    // Keeps the program running while it is held.
    const loss = this.lost().then((lost) => (lost === undefined ? outcome : { error: lost }));
    const done = await Promise.race([outcome, loss]);
    if (this.#cell.stage.is !== "released") this.check();
    if (this.#given?.aborted) throw this.#given.reason;
    if ("error" in done) throw done.error;
    return done.value;
  }

  #over(): Promise<Cell> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (!this.#cell.isOver) return;
        stop();
        resolve(this.#cell);
      };
      const stop = this.#cell.watch(look);
      look();
    });
  }

  #loss(): Lost {
    this.#core.conclude(this.#cell);
    if (this.#cell.stage.is === "lost") return this.#cell.stage.lost;
    const reason = this.#cell.stage.is === "released" ? "released" : "untold";
    return new Lost(`${this.kind}/${this.name}`, this.token, reason);
  }
}

/**
 * Gives back a hold, or a place in the queue; asked again in the background unless the answer comes. A hold that is not
 * held any more is lost.
 */
export async function giveBack(core: Core, cell: Cell): Promise<void> {
  if (cell.stage.is === "held" && !core.shows(cell)) {
    core.conclude(cell);
    // Without a connection a restarted agent may have it still, and show it in another slot.
    if (core.state === "connected") cell.lose("untold", false);
  }
  const mine = cell.release();
  core.drop(cell);
  const isUntold = cell.stage.is === "lost" && !cell.stage.told;
  if (core.gone !== undefined || !(mine || isUntold)) return;
  if (isUntold) {
    void core.releaseInBackground(cell.id);
    return;
  }
  try {
    await core.client.release(core.session, cell.id);
  } catch (error) {
    if (isTransient(error)) void core.releaseInBackground(cell.id);
  }
}

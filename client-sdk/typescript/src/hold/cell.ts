import { Lost, type Reason } from "../errors.js";
import { END_OF_TIME } from "../page/clock.js";
import { slotOf, type Slot } from "../page/reader.js";
import type { Acquired, Grant, Kind, Waiting } from "../wire.js";

/** The stage of a hold in its life, as far as this program knows. */
export type Stage =
  | { readonly is: "waiting" }
  | { readonly is: "held"; readonly grant: Grant }
  /** `told` by the agent; else concluded here, so that the agent may still think it held. */
  | { readonly is: "lost"; readonly lost: Lost; readonly told: boolean }
  | { readonly is: "released" }
  /** A wait of which a restarted agent knows nothing: ask again. */
  | { readonly is: "forgotten" };

/** The state of one hold, shared by its handle, the event stream and the warden. */
export class Cell {
  readonly id: string;
  readonly kind: Kind;
  /** For a master the project. */
  readonly name: string;
  /** The stream on which this hold's events come, counted: snapshots of earlier ones omit it. */
  readonly bornIn: number;
  stage: Stage;
  slot: Slot | undefined;
  /** The latest valid-until seen, ns: when the page no longer says. */
  seenValidUntil = 0n;
  /** Since when the page says *not held* though nobody told why, ms of `performance.now()`. */
  doubtedSince: number | undefined;
  /** How long it may last in all, as it was asked for. */
  maxHoldMs: number | undefined;
  #grant: Grant | undefined;
  readonly #watchers = new Set<() => void>();

  constructor(reply: Acquired | Waiting, bornIn: number) {
    this.id = reply.hold;
    this.kind = reply.kind;
    this.name = reply.name;
    this.bornIn = bornIn;
    this.stage = { is: "waiting" };
  }

  get isOver(): boolean {
    return this.stage.is !== "waiting" && this.stage.is !== "held";
  }

  /** Granted, or granted still: a restarted agent may have given it another slot. */
  granted(grant: Grant): void {
    if (this.isOver) return;
    this.slot = slotOf(grant.slot, this.id);
    this.seenValidUntil = grant.validUntilBoottimeNs;
    if (this.stage.is !== "waiting") return;
    this.#grant = grant;
    this.#advance({ is: "held", grant });
  }

  /**
   * The valid-until that the page shows, 0 for none, has passed without an event of the agent; `why` is the reason, as
   * far as it is known here.
   */
  expire(shown: bigint, why: string): void {
    const ended = shown === 0n ? this.seenValidUntil : shown;
    if (ended >= this.#lastInstant()) this.lose("max_hold", false);
    else this.lose("expired", false, undefined, why);
  }

  /**
   * The valid-until that no renewal can raise, by the agent's clock: this program may have heard late of the grant. Its
   * first valid-until is counted from its ttl, or from `maxHoldMs` if that is shorter.
   */
  #lastInstant(): bigint {
    if (this.maxHoldMs === undefined || this.#grant === undefined) return END_OF_TIME;
    const { validUntilBoottimeNs, ttlMs } = this.#grant;
    return validUntilBoottimeNs + BigInt(Math.max(0, this.maxHoldMs - ttlMs)) * 1_000_000n;
  }

  /** Ends a hold as lost, whether it had been granted or not. */
  lose(reason: Reason, told: boolean, by?: string, detail?: string): void {
    const token = this.stage.is === "held" ? this.stage.grant.token : 0n;
    this.#advance({ is: "lost", lost: new Lost(`${this.kind}/${this.name}`, token, reason, by, detail), told });
  }

  /** Ends a hold as given back. Returns whether it was not over. */
  release(): boolean {
    return this.#advance({ is: "released" });
  }

  /** The agent says that it was given back, but not by its owner, who would have said so before. */
  releasedElsewhere(): void {
    if (this.stage.is === "held") this.lose("released", true);
    else this.#advance({ is: "released" });
  }

  /** The agent has no such hold: a wait is to be asked for again, a hold is lost. */
  forget(): void {
    if (this.stage.is === "held") this.lose("forgotten", true);
    else this.#advance({ is: "forgotten" });
  }

  /** Calls `listener` at every new stage. Returns how to stop that. */
  watch(listener: () => void): () => void {
    this.#watchers.add(listener);
    return () => this.#watchers.delete(listener);
  }

  /** Waits until it is granted or over. */
  settled(): Promise<Stage> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (this.stage.is === "waiting") return;
        stop();
        resolve(this.stage);
      };
      const stop = this.watch(look);
      look();
    });
  }

  /** A hold that is over stays over. */
  #advance(to: Stage): boolean {
    if (this.isOver) return false;
    this.stage = to;
    for (const listener of [...this.#watchers]) listener();
    return true;
  }
}

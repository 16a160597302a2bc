import { Backoff } from "../backoff.js";
import { milliseconds, type Duration } from "../duration.js";
import { AgentUnavailable, Busy, Refused, SessionGone, TenureError, UpstreamUnavailable, WaitTimeout, hasCode, isSessionGone, isTransient } from "../errors.js";
import { TRY_DEADLINE_MS } from "../client/client.js";
import type { Core } from "../session/core.js";
import type { Life } from "../session/life.js";
import { Claim, asCaller, enter, heldByTask, outside, within } from "../task.js";
import { awake, pause } from "../timers.js";
import type { Acquire, Acquired, Attributes, History, Kind, Problem, Standing, Waiting, Why } from "../wire.js";
import type { Cell } from "./cell.js";
import { Hold, giveBack } from "./hold.js";
import { Inquiry } from "./inquiry.js";
import { Standby } from "./standby.js";

/** How long a single try outlasts a restart of the agent, ms. */
const RESTART_PATIENCE_MS = 2000;
/** The longest that an agent's advice to wait is followed, ms. */
const ADVICE_MAX_MS = 5000;

/** Options of every kind of resource. */
export interface ResourceOptions {
  /** How long the hold outlives its last beat. Default by kind: leader, master and semaphore 30 s, lease 300 s. */
  readonly ttl?: Duration;
  /** How long the hold may last in all. Default: no limit. */
  readonly maxHold?: Duration;
  /**
   * How long after its grant it is kept from others at least, whatever becomes of the program, its session and the
   * agent: so that a job that ends early is not run again at once elsewhere. 24 h at most. Default: not at all.
   */
  readonly holdAtLeast?: Duration;
  /**
   * It has to exclude all hosts: {@link Refused} (`forbidden`) where the agent's store is this host's alone, so that
   * other hosts could hold it, too. Default: as the agent's setting `require` says.
   */
  readonly fleet?: boolean;
}

export interface SemaphoreOptions extends ResourceOptions {
  /** Permits in all, from now on and for everybody. Default: the limit in force; 1 if nobody holds or waits. */
  readonly limit?: number;
}

export interface MasterOptions extends ResourceOptions {
  /** Preempts a lower one. Default 0. */
  readonly priority?: number;
}

export interface LeaseOptions extends ResourceOptions {
  /** How long after expiry only the former holder may have it back. Default 60 s. */
  readonly grace?: Duration;
  /** What the routing table says. */
  readonly attributes?: Attributes;
}

/** Any of them; the agent refuses what does not belong to the kind. */
export type AnyOptions = SemaphoreOptions & MasterOptions & LeaseOptions;

export interface AcquireOptions {
  /** How long to wait while somebody has it: 0 or false tries once. Default: for ever. */
  readonly wait?: Duration | boolean | undefined;
  /** Ends the wait; once it is held, aborts the hold's own signal. */
  readonly signal?: AbortSignal | undefined;
}

export type CampaignOptions = Pick<AcquireOptions, "signal">;

/** A resource as a program would like to have it. Asks for nothing before `acquire`, `run` or `campaign`. */
export class Resource {
  readonly #life: Life;
  readonly #want: Omit<Acquire, "session" | "wait" | "request">;

  /** @internal */
  constructor(life: Life, kind: Kind, name: string | undefined, options: AnyOptions) {
    const ms = (duration: Duration | undefined, what: string): number | undefined =>
      duration === undefined ? undefined : milliseconds(duration, what);
    this.#life = life;
    this.#want = {
      kind,
      name,
      fleet: options.fleet || undefined,
      ttlMs: ms(options.ttl, "ttl"),
      maxHoldMs: ms(options.maxHold, "maxHold"),
      holdAtLeastMs: ms(options.holdAtLeast, "holdAtLeast"),
      limit: options.limit,
      priority: options.priority,
      graceMs: ms(options.grace, "grace"),
      attributes: options.attributes,
    };
  }

  /**
   * Waits until it is granted, as long as `wait` says: tasks of one program wait for each other, too. Restarts of the
   * agent and times without an upstream are outlasted meanwhile. A wait that ends without a grant leaves nothing
   * behind. All that the caller starts after this call, timers too, counts as the task that holds it.
   *
   * @throws `Busy` when `wait` is 0 and somebody has it, or when this very task does; {@link WaitTimeout}; the reason
   * of `signal`; {@link AgentUnavailable}, {@link UpstreamUnavailable}.
   */
  async acquire(options: AcquireOptions = {}): Promise<Hold> {
    const claim = this.#claim();
    // Before the first `await` here, so that the caller has it after its own.
    enter(claim);
    return this.#ask(claim, options);
  }

  /**
   * Runs `work` while it is held, then gives it back. The hold's `signal` aborts when the work must stop. The task
   * that holds it is `work`, and all that `work` starts.
   *
   * @throws Those of {@link acquire}; {@link Lost} at the loss, also if the work ended by itself after it; the reason
   * of `options.signal` once the work has stopped because of it; else what the work throws.
   */
  run<T>(work: (hold: Hold) => T | PromiseLike<T>, options: AcquireOptions = {}): Promise<T> {
    return asCaller(() => this.#run(work, options));
  }

  async #run<T>(work: (hold: Hold) => T | PromiseLike<T>, options: AcquireOptions): Promise<T> {
    const claim = this.#claim();
    const hold = await this.#ask(claim, options);
    try {
      return await hold.guard(() => within(claim, () => work(hold)));
    } finally {
      await hold[Symbol.asyncDispose]();
    }
  }

  /** A function that runs `work` while it is held. */
  wrap<A extends unknown[], R>(work: (...args: A) => R | PromiseLike<R>, options: AcquireOptions = {}): (...args: A) => Promise<R> {
    return (...args) => this.run(() => work(...args), options);
  }

  /**
   * Stands for it for good: one term after the other, each with a token of its own. A term is given back when the
   * loop's body ends. Ends with the reason of `signal`, which also aborts the signal of the term.
   *
   * While the body of a lost term still ends, the campaign stands in line for the next one: its place in the queue is
   * not lost. A grant that comes meanwhile is kept for one ttl at most. It is given back then, and the campaign stands in
   * line again once the body has ended.
   */
  async *campaign(options: CampaignOptions = {}): AsyncGenerator<Hold, never, void> {
    const backoff = new Backoff();
    const claim = this.#claim();
    // Before the first `await` here, so that the loop's body has it, and with it every term.
    enter(claim);
    const end = new AbortController();
    const stop = (): void => end.abort(options.signal?.reason);
    options.signal?.addEventListener("abort", stop, { once: true });
    if (options.signal?.aborted) stop();
    let standby: Standby | undefined;
    try {
      for (let terms = 0; ; terms++) {
        let term: Hold | undefined;
        try {
          term = standby && (await awake(standby.join()));
          standby = undefined;
          term ??= await this.#ask(claim, { signal: end.signal });
        } catch (error) {
          if (terms === 0 || !isTransient(error)) throw error;
          await awake(backoff.wait(end.signal));
          continue;
        }
        claim.hold = term;
        // A grant that is given back would be kept from others all the same.
        if (this.#want.holdAtLeastMs === undefined) {
          standby = new Standby(term, () => outside(() => this.#acquire(undefined, end.signal, undefined)));
        }
        try {
          yield term;
        } finally {
          await term[Symbol.asyncDispose]();
        }
      }
    } finally {
      options.signal?.removeEventListener("abort", stop);
      end.abort();
    }
  }

  /** Its holders and waiters, across the fleet. */
  async standing(): Promise<Standing> {
    return this.#standing(await this.#life.open());
  }

  /** The last changes of who held it, across the fleet. */
  async history(): Promise<History> {
    return (await this.#life.open()).client.history(...this.#resource());
  }

  /** Who has it, who waits for it, and how it came to that. */
  async why(): Promise<Why> {
    return (await this.#life.open()).client.why(...this.#resource());
  }

  #claim(): Claim {
    const [kind, name, tenant = "default"] = this.#resource();
    return new Claim(kind === "semaphore" ? undefined : JSON.stringify([this.#life.socket, tenant, kind, name]));
  }

  /** Acquires for a task. A wait for what the task itself holds would have no end, and does not begin. */
  async #ask(claim: Claim, options: AcquireOptions): Promise<Hold> {
    const { signal } = options;
    const wait = options.wait === undefined || options.wait === true ? undefined : milliseconds(options.wait || 0, "wait");
    signal?.throwIfAborted();
    const own = heldByTask(claim.resource);
    // The agent itself refuses what this very session holds. A priority may preempt what the task holds.
    if (own !== undefined && wait !== 0 && this.#want.priority === undefined && !own.isOf(this.#life.core)) {
      throw new Busy(`${own.kind}/${own.name} is held by this task itself, with token ${own.token} of another session: give it back first`, undefined, true);
    }
    claim.hold = await outside(() => awake(this.#acquire(wait, signal, own)));
    return claim.hold;
  }

  async #acquire(wait: number | undefined, signal: AbortSignal | undefined, own: Hold | undefined): Promise<Hold> {
    const until = wait === undefined ? Number.POSITIVE_INFINITY : performance.now() + wait;
    const backoff = new Backoff();
    for (let attempts = 1; ; attempts++) {
      signal?.throwIfAborted();
      // A session may be waited for longer by others that open it.
      const patience = wait === undefined ? undefined : Math.max(0, until - performance.now()) + TRY_DEADLINE_MS;
      let core: Core;
      try {
        core = await abortable(this.#life.open(patience), signal);
      } catch (error) {
        // Whoever waits outlasts an agent that is stopped, also at the first acquire.
        const isSilent = error instanceof AgentUnavailable && error.code === "ETIMEDOUT";
        if (!isSilent || performance.now() >= until) throw error;
        continue;
      }
      try {
        if (wait === undefined) return await this.#queue(core, signal, own);
        return await (wait === 0 ? this.#once(core, signal, own) : this.#block(core, until, signal, own));
      } catch (error) {
        // The agent has ended the session, or forgotten it; a new one may wait in its place.
        const isOver = attempts > 1 && performance.now() >= until;
        if (!(error instanceof SessionGone) || this.#life.closed || isOver) throw error;
      }
      await backoff.wait(signal);
    }
  }

  async #once(core: Core, signal: AbortSignal | undefined, own: Hold | undefined): Promise<Hold> {
    const inquiry = new Inquiry(core, { ...this.#want, wait: "none" });
    const backoff = new Backoff();
    const until = performance.now() + RESTART_PATIENCE_MS;
    try {
      for (;;) {
        signal?.throwIfAborted();
        try {
          const reply = await inquiry.ask(signal);
          if (reply.state !== "waiting") return this.#granted(core, reply, signal);
          void giveBack(core, core.adopt(reply));
          throw new AgentUnavailable("the agent makes wait who does not want to", { code: "EPROTO" });
        } catch (error) {
          const isRestart = error instanceof AgentUnavailable && error.code !== "ETIMEDOUT" && isTransient(error);
          if (!isRestart || performance.now() > until) throw await this.#refused(core, error, own);
        }
        await backoff.wait(signal);
      }
    } finally {
      inquiry.abandon();
    }
  }

  async #block(core: Core, until: number, signal: AbortSignal | undefined, own: Hold | undefined): Promise<Hold> {
    const backoff = new Backoff();
    let inquiry = this.#inquire(core, "block", own);
    try {
      for (;;) {
        signal?.throwIfAborted();
        if (core.gone !== undefined) throw core.gone;
        const left = until - performance.now();
        let passing: unknown;
        try {
          const reply = await inquiry.ask(signal, Math.max(1, Math.ceil(left)));
          if (reply.state !== "waiting") return this.#granted(core, reply, signal);
          throw new AgentUnavailable("the agent does not answer a wait that blocks", { code: "EPROTO" });
        } catch (error) {
          if (signal?.aborted) throw signal.reason;
          if (asksAgain(inquiry, error, own)) continue;
          if (hasCode(error, "hold_lost")) inquiry = this.#inquire(core, "block", own);
          else if (!isTransient(error) || left <= 0) throw await this.#refused(core, error, own);
          passing = error;
        }
        const step = Math.max(advice(passing), backoff.step());
        await pause(Math.max(0, Math.min(step, until - performance.now())), signal);
      }
    } finally {
      inquiry.abandon();
    }
  }

  async #queue(core: Core, signal: AbortSignal | undefined, own: Hold | undefined): Promise<Hold> {
    const backoff = new Backoff();
    let inquiry = this.#inquire(core, "queue", own);
    let place: Cell | undefined;
    try {
      for (;;) {
        signal?.throwIfAborted();
        if (core.gone !== undefined) throw core.gone;
        try {
          const reply = await inquiry.ask(signal);
          const cell = this.#adopt(core, reply);
          const before: Cell | undefined = place;
          place = cell;
          if (before !== undefined && before !== cell) void giveBack(core, before);
          // The grant may have been told before anybody here listened for it: ask twice.
          if (reply.state === "waiting" && before !== cell) continue;
          const stage = await abortable(cell.settled(), signal);
          if (stage.is === "held") {
            const hold = new Hold(core, cell, stage.grant, signal);
            place = undefined;
            return hold;
          }
          // A restarted agent knows nothing of it: the same request again, not to be granted twice.
          place = undefined;
          core.drop(cell);
          if (stage.is !== "forgotten") throw core.gone ?? this.#ended(stage.is === "lost" ? stage.lost.reason : "released");
        } catch (error) {
          if (signal?.aborted) throw signal.reason;
          if (asksAgain(inquiry, error, own)) continue;
          // The request was granted, and lost before this heard of it.
          if (hasCode(error, "hold_lost")) inquiry = this.#inquire(core, "queue", own);
          else if (!isTransient(error)) throw await this.#refused(core, error, own);
          await pause(Math.max(advice(error), backoff.step()), signal);
        }
      }
    } finally {
      inquiry.abandon();
      if (place !== undefined) void giveBack(core, place);
    }
  }

  #standing(core: Core): Promise<Standing> {
    return core.client.standing(...this.#resource());
  }

  #resource(): [Kind, string, string | undefined] {
    const { project, tenant } = this.#life.register;
    return [this.#want.kind, this.#want.name ?? project ?? "default", tenant];
  }

  #adopt(core: Core, reply: Acquired | Waiting): Cell {
    const cell = core.adopt(reply);
    cell.maxHoldMs = this.#want.maxHoldMs;
    return cell;
  }

  #granted(core: Core, acquired: Acquired, signal: AbortSignal | undefined): Hold {
    return new Hold(core, this.#adopt(core, acquired), acquired, signal);
  }

  /** A request that waits, also for what another task of this session holds. */
  #inquire(core: Core, wait: "block" | "queue", own: Hold | undefined): Inquiry {
    const inquiry = new Inquiry(core, { ...this.#want, wait });
    const [kind, name] = this.#resource();
    inquiry.behindOwn = kind !== "semaphore" && own?.isShown() !== true && core.holds(kind, name);
    return inquiry;
  }

  async #refused(core: Core, error: unknown, own: Hold | undefined): Promise<unknown> {
    if (isSessionGone(error)) return core.gone ?? new SessionGone(error.message);
    if (!(error instanceof Refused) || error instanceof UpstreamUnavailable) return error;
    const problem: Problem = error.problem;
    // An older agent cannot let wait behind another task of the session.
    const isBusy = problem.code === "contended" || problem.field === "behind_own";
    if (isBusy) return new Busy(problem.detail, problem.holder, own?.isShown());
    if (problem.code !== "wait_timeout") return error;
    // The agent names nobody here.
    const standing = await this.#standing(core).catch(() => undefined);
    return new WaitTimeout(problem.detail, problem.holder ?? standing?.holders[0]);
  }

  #ended(reason: string): TenureError {
    const { kind, name } = this.#want;
    return new TenureError(`the wait for ${name === undefined ? kind : `${kind}/${name}`} was ended: ${reason}; acquire again`);
  }
}

/** Has a request wait that was refused for a hold of another task of its session. Returns whether to ask it again. */
function asksAgain(inquiry: Inquiry, error: unknown, own: Hold | undefined): boolean {
  const isOwn = hasCode(error, "contended") && error.problem.holder?.hold !== undefined;
  if (!isOwn || inquiry.behindOwn || own?.isShown()) return false;
  inquiry.behindOwn = true;
  return true;
}

/** How long the agent says one should wait, ms. */
function advice(error: unknown): number {
  return error instanceof Refused ? Math.min(error.problem.retryAfterMs ?? 0, ADVICE_MAX_MS) : 0;
}

/** The same, unless `signal` aborts first. */
export function abortable<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

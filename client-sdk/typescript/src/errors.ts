import type { Holder, LostReason, Problem } from "./wire.js";

/** Any error of this package but wrong arguments, which are a TypeError. */
export class TenureError extends Error {
  override name = "TenureError";
}

/** Somebody else has it, or nobody let go in time. */
export class Busy extends TenureError {
  override name = "Busy";
  /** The holder, where the upstream says. */
  readonly holder: Holder | undefined;
  /** True if the very task that asks has it: leader, lease and master are not re-entrant. */
  readonly heldBySelf: boolean;

  constructor(message: string, holder: Holder | undefined, heldBySelf = false) {
    super(message);
    this.holder = holder;
    this.heldBySelf = heldBySelf;
  }
}

/** It was not free in time. */
export class WaitTimeout extends Busy {
  override name = "WaitTimeout";
}

/**
 * The reason of a loss: the agent's, or `released` (given back by another call on the same session),
 * `session_gone`, `forgotten` (the agent knows nothing of it any more), or `untold` (the page shows that it has
 * ended; the agent's reason has not arrived yet).
 */
export type Reason = LostReason | "released" | "session_gone" | "forgotten" | "untold";

/** A hold is gone: its holder must have stopped. */
export class Lost extends TenureError {
  override name = "Lost";
  /** The fencing token that it had. */
  readonly token: bigint;
  readonly reason: Reason;
  /** Who took it away, where the agent says. */
  readonly by: string | undefined;
  /** Why the hold was taken away, in the administrator's words; of an expired hold, why it was not renewed. */
  readonly detail: string | undefined;

  constructor(what: string, token: bigint, reason: Reason, by?: string, detail?: string) {
    const who = by === undefined ? "" : ` by ${by}`;
    const why = detail === undefined ? "" : `: ${detail}`;
    super(`${what} with token ${token} was lost: ${reason}${who}${why}; stop, and acquire again for a new token`);
    this.token = token;
    this.reason = reason;
    this.by = by;
    this.detail = detail;
  }
}

/** The session has ended, and all its holds with it; a new one must be opened. */
export class SessionGone extends TenureError {
  override name = "SessionGone";

  constructor(why: string) {
    super(`the session is gone: ${why}; open a new one`);
  }
}

/** The session's validity page cannot be used. */
export class PageError extends TenureError {
  override name = "PageError";
}

/** This program reads another clock than the agent: it is in another time namespace. */
export class ClocksDiffer extends TenureError {
  override name = "ClocksDiffer";
}

/** The agent could not be asked, went away before it answered, or answered like another program. */
export class AgentUnavailable extends TenureError {
  override name = "AgentUnavailable";
  /** The system's code, such as `ENOENT`, where there is one. */
  readonly code: string | undefined;
  /** True if the request cannot have reached the agent. */
  readonly neverSent: boolean;

  constructor(message: string, options: { cause?: unknown; code?: string | undefined; neverSent?: boolean } = {}) {
    super(message, "cause" in options ? { cause: options.cause } : {});
    this.code = options.code;
    this.neverSent = options.neverSent ?? false;
  }
}

/** The agent understood and said no; {@link Problem.code} says why. */
export class Refused extends TenureError {
  override name = "Refused";
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(`${problem.code}: ${problem.detail}`);
    this.problem = problem;
  }
}

/** The agent answers, but its upstream does not. */
export class UpstreamUnavailable extends Refused {
  override name = "UpstreamUnavailable";

  /** When to try again, ms, where the agent says. */
  get retryAfterMs(): number | undefined {
    return this.problem.retryAfterMs;
  }
}

/** True if the same call may succeed a little later without anybody doing anything. */
export function isTransient(error: unknown): boolean {
  if (error instanceof Refused) {
    return error.problem.code === "upstream_unavailable" || error.problem.code === "stopping";
  }
  return error instanceof AgentUnavailable && error.code !== "EPROTO";
}

export function isSessionGone(error: unknown): error is Refused {
  return hasCode(error, "session_unknown") || hasCode(error, "session_lost");
}

export function hasCode(error: unknown, code: Problem["code"]): error is Refused {
  return error instanceof Refused && error.problem.code === code;
}

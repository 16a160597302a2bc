import { AsyncLocalStorage } from "node:async_hooks";
import { execFile, execFileSync } from "node:child_process";
import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";

import {
  AgentUnavailable, Busy, Hold, Lost, Refused, Tenure, UpstreamUnavailable, WaitTimeout, type AcquireOptions, type Event, type Resource,
  type Session,
} from "tenure";
import { startAgent, type TestAgent } from "tenure/testing";

import { Redis } from "../redis.js";
import type { Expected, Scenario, Step, Wanted } from "./script.js";

const WITHIN_MS = 10_000;
const PACE_MS = 5;
const SLOT_SIZE = 64;
const VALID_UNTIL_AT = 24;
const CANCELLED = new Error("cancelled");

interface Recorded {
  readonly session: Session;
  readonly events: Event[];
  /** The first event that no step has found yet. */
  next: number;
}

interface Begun {
  readonly as: string;
  readonly outcome: Promise<Hold>;
  readonly controller: AbortController;
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Runs a scenario against an agent of its own; throws at the first step that is not as it says. */
export async function runScenario(scenario: Scenario): Promise<void> {
  await using redis = scenario.redis ? await Redis.start() : undefined;
  const env = Object.entries(scenario.agent ?? {}).map(([key, value]) => [`TENURED_${key.toUpperCase().replaceAll(".", "_")}`, value]);
  await using agent = await startAgent({ ...(redis ? { upstream: redis.url } : {}), env: Object.fromEntries(env) as Record<string, string> });
  await using runner = new Runner(agent, redis);
  for (const [index, step] of scenario.steps.entries()) {
    try {
      await runner.run(step);
    } catch (cause) {
      throw new Error(`step ${index + 1}, ${JSON.stringify(step)}: ${cause}\nthe agent's log:\n${agent.log}`, { cause });
    }
  }
}

class Runner implements AsyncDisposable {
  readonly #agent: TestAgent;
  readonly #redis: Redis | undefined;
  readonly #tenure: Tenure;
  readonly #sessions = new Map<string, Recorded>();
  readonly #holds = new Map<string, Hold>();
  readonly #begun = new Map<string, Begun>();
  readonly #work = new Map<string, Promise<unknown>>();
  readonly #root = AsyncLocalStorage.snapshot();

  constructor(agent: TestAgent, redis: Redis | undefined) {
    this.#agent = agent;
    this.#redis = redis;
    this.#tenure = new Tenure({ socket: agent.socket });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#agent.signal("SIGCONT");
    for (const { controller } of this.#begun.values()) controller.abort(CANCELLED);
    await Promise.allSettled([...this.#sessions.values()].map(({ session }) => session.close()));
  }

  async run(step: Step): Promise<void> {
    const within = step.within_ms ?? WITHIN_MS;
    switch (step.do) {
      case "session":
        return this.#open(step.as, step.options ?? {});
      case "acquire":
        return this.#expect(this.#acquire(step, waitOf(step)), step.as, step);
      case "begin": {
        const controller = new AbortController();
        const outcome = this.#acquire(step, { ...waitOf(step), signal: controller.signal });
        outcome.catch(() => {});
        this.#begun.set(step.as, { as: step.as, outcome, controller });
        return;
      }
      case "end":
        return this.#expect(deadline(this.#of(this.#begun, step.of).outcome, within), step.of, step);
      case "cancel": {
        const { controller, outcome } = this.#of(this.#begun, step.of);
        controller.abort(CANCELLED);
        return assert.rejects(outcome, CANCELLED);
      }
      case "waiting":
      case "holding":
        return until(within, async () => assert.equal((await this.#resource({ ...step, as: "" }).standing())[step.do], step.count));
      case "release": {
        const release = this.#of(this.#holds, step.hold).release();
        if (step.expect !== "lost") return release;
        return assert.rejects(release, (error) => error instanceof Lost && error.reason === step.reason);
      }
      case "held": {
        const hold = this.#of(this.#holds, step.hold);
        return until(within, () => {
          assert.equal(hold.isHeld(), step.is);
          if (step.is) hold.check();
          else assert.throws(() => hold.check(), Lost);
        });
      }
      case "steadily": {
        const hold = this.#of(this.#holds, step.hold);
        for (const end = performance.now() + step.ms; performance.now() < end; await pause(PACE_MS)) assert.equal(hold.isHeld(), true);
        return;
      }
      case "guard": {
        const work = this.#of(this.#holds, step.hold).guard(({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))));
        work.catch(() => {});
        this.#work.set(step.as, work);
        return;
      }
      case "ended":
        return assert.rejects(deadline(this.#of(this.#work, step.of), within), (error) => {
          assert.ok(error instanceof Lost, String(error));
          assert.equal(error.reason, step.reason);
          return true;
        });
      case "token":
        return assert.ok(this.#of(this.#holds, step.hold).token > this.#of(this.#holds, step.above).token);
      case "slots": {
        const { page } = this.#recorded(step.session).session.registered;
        return until(within, () => assert.equal(slotsHeld(page), step.count));
      }
      case "event": {
        const recorded = this.#recorded(step.session);
        const hold = step.hold === undefined ? undefined : this.#of(this.#holds, step.hold).id;
        const wanted = Object.entries({ type: step.event, hold, reason: step.reason, cause: step.cause }).filter(([, value]) => value !== undefined);
        return until(within, () => {
          const at = recorded.events.findIndex((event, index) => index >= recorded.next && wanted.every(([key, value]) => (event as unknown as Record<string, unknown>)[key] === value));
          assert.ok(at >= 0, `events are ${recorded.events.map(({ type }) => type)}`);
          recorded.next = at + 1;
        });
      }
      case "none": {
        const { events, next } = this.#recorded(step.session);
        return assert.ok(events.slice(next).every(({ type }) => type !== step.event));
      }
      case "revoke": {
        await promisify(execFile)(...this.#revoking(step.kind, step.name));
        return;
      }
      case "agent":
        return this.#tell(step.action);
      case "redis":
        return this.#tellRedis(step.action);
      case "block":
        if (step.kind !== undefined) execFileSync(...this.#revoking(step.kind, step.name ?? ""));
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, step.ms);
        if (step.held !== undefined) assert.equal(this.#of(this.#holds, step.held).isHeld(), true, "it ended meanwhile");
        if (step.over !== undefined) assert.equal(this.#of(this.#holds, step.over).isHeld(), false, "it was revoked meanwhile");
        return;
      case "pause":
        return pause(step.ms);
      case "beat":
        return this.#recorded(step.session).session.beat();
      case "close":
        return this.#recorded(step.session).session.close();
      case "sessions": {
        const sessions = await Promise.all(Array.from({ length: step.count }, () => this.#tenure.session()));
        const holds = await Promise.all(sessions.map((session) => session.semaphore(step.name, { limit: step.limit }).acquire()));
        assert.ok(holds.every((hold) => hold.isHeld()));
        await Promise.all(sessions.map((session) => session.close()));
        return;
      }
    }
  }

  #revoking(kind: string, name: string): [string, string[], { env: NodeJS.ProcessEnv }] {
    return [process.env["TENURE"] ?? "tenure", ["revoke", kind, name], { env: { ...process.env, TENURE_SOCKET: this.#agent.socket } }];
  }

  async #open(as: string, options: { name?: string; project?: string; progress_ms?: number; linger_ms?: number; holds?: number }): Promise<void> {
    const { progress_ms: progress, linger_ms: linger, ...rest } = options;
    const session = await this.#tenure.session({ ...rest, ...(progress ? { progress } : {}), ...(linger ? { linger } : {}) });
    const recorded: Recorded = { session, events: [], next: 0 };
    this.#sessions.set(as, recorded);
    void (async () => {
      for await (const event of session.events()) recorded.events.push(event);
    })();
  }

  /** Each step is a task of its own. */
  #acquire(step: Wanted, options: AcquireOptions): Promise<Hold> {
    return this.#root(() => this.#resource(step).acquire(options));
  }

  #resource(step: Wanted): Resource {
    const { session } = this.#recorded(step.session);
    const { ttl_ms: ttl, max_hold_ms: maxHold, fleet } = step;
    const options = {
      ...(ttl === undefined ? {} : { ttl }),
      ...(maxHold === undefined ? {} : { maxHold }),
      ...(fleet === undefined ? {} : { fleet }),
    };
    const name = step.name ?? "";
    switch (step.kind) {
      case "leader":
        return session.leader(name, options);
      case "semaphore":
        return session.semaphore(name, { ...options, ...(step.limit === undefined ? {} : { limit: step.limit }) });
      case "lease": {
        const attributes = step.address === undefined ? {} : { attributes: { address: step.address } };
        return session.lease(name, { ...options, ...attributes, ...(step.grace_ms === undefined ? {} : { grace: step.grace_ms }) });
      }
      case "master":
        return session.master({ ...options, ...(step.priority === undefined ? {} : { priority: step.priority }) });
    }
  }

  async #expect(outcome: Promise<Hold>, as: string, { expect = "held", code, holder }: Expected): Promise<void> {
    const result = await outcome.catch((error: unknown) => error);
    if (expect === "held") {
      assert.ok(result instanceof Hold, String(result));
      this.#holds.set(as, result);
      return;
    }
    assert.ok(result instanceof Error, "it was granted");
    assert.equal(sortOf(result), expect, String(result));
    if (code !== undefined) assert.equal((result as Refused).problem.code, code);
    if (holder !== undefined) assert.equal((result as Busy).holder?.name, holder);
  }

  async #tell(action: Extract<Step, { do: "agent" }>["action"]): Promise<void> {
    const agent = this.#agent;
    if (action === "restart") return agent.restart();
    if (action === "crash") {
      await agent.kill();
      return agent.start();
    }
    if (action === "kill" || action === "stop" || action === "start") return agent[action]();
    agent.signal(action === "freeze" ? "SIGSTOP" : "SIGCONT");
  }

  async #tellRedis(action: Extract<Step, { do: "redis" }>["action"]): Promise<void> {
    const redis = this.#redis;
    assert.ok(redis !== undefined, "the scenario has no Redis");
    if (action === "kill" || action === "start") return redis[action]();
    redis.signal(action === "freeze" ? "SIGSTOP" : "SIGCONT");
  }

  #recorded(label: string): Recorded {
    return this.#of(this.#sessions, label);
  }

  #of<T>(map: ReadonlyMap<string, T>, label: string): T {
    const found = map.get(label);
    assert.ok(found !== undefined, `nothing is called ${label}`);
    return found;
  }
}

function waitOf({ wait_ms: wait }: Wanted): { wait?: number } {
  return wait === undefined ? {} : { wait };
}

function sortOf(error: Error): string {
  if (error instanceof WaitTimeout) return "wait_timeout";
  if (error instanceof Busy) return "busy";
  if (error instanceof AgentUnavailable) return "agent_unavailable";
  if (error instanceof UpstreamUnavailable) return "upstream_unavailable";
  return error instanceof Refused ? "refused" : error.name;
}

/** Read here without the package's own reader, which is what is tested. */
function slotsHeld(path: string): number {
  const page = readFileSync(path);
  const now = BigInt(readFileSync("/proc/uptime", "latin1").split(" ")[0]!.replace(".", "")) * 10_000_000n;
  let held = 0;
  for (let at = SLOT_SIZE; at < page.length; at += SLOT_SIZE) {
    if (page.readBigUInt64LE(at + VALID_UNTIL_AT) > now) held++;
  }
  return held;
}

async function until(within: number, check: () => void | Promise<void>): Promise<void> {
  for (const end = performance.now() + within; ; await pause(PACE_MS)) {
    try {
      return await check();
    } catch (error) {
      if (performance.now() > end) throw error;
    }
  }
}

function deadline<T>(work: Promise<T>, within: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout>;
  const late = new Promise<never>((_, reject) => (timer = setTimeout(() => reject(new Error(`not within ${within} ms`)), within)));
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

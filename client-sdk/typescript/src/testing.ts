/// <reference types="node" preserve="true" />

import "./dispose.js";
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Client } from "./client/client.js";
import { AgentUnavailable } from "./errors.js";

const READY_MS = 30_000;
const PACE_MS = 20;

export interface AgentOptions {
  /** The program. Default: TENURED, else `tenured` in PATH. */
  readonly tenured?: string;
  /** Default `embedded:`. */
  readonly upstream?: string;
  /** More of its settings, such as `TENURED_LEADER_TTL`. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Starts a real agent in a temporary folder, for tests; `await using` stops it and deletes the folder. */
export async function startAgent(options: AgentOptions = {}): Promise<TestAgent> {
  const agent = new TestAgent(options);
  try {
    await agent.start();
  } catch (error) {
    await agent.close();
    throw error;
  }
  return agent;
}

/** A real agent that belongs to a test. */
export class TestAgent implements AsyncDisposable {
  readonly directory = mkdtempSync(join(tmpdir(), "tenure-"));
  readonly socket = join(this.directory, "api.sock");
  readonly #options: AgentOptions;
  #child: ChildProcess | undefined;
  #log = "";

  /** @internal */
  constructor(options: AgentOptions) {
    this.#options = options;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** The last of what it has logged. */
  get log(): string {
    return this.#log;
  }

  /** Starts it, again after `kill` or `stop`; returns when it answers. */
  async start(): Promise<void> {
    const program = this.#options.tenured ?? process.env["TENURED"] ?? "tenured";
    const directories = { TENURED_RUNTIME_DIR: "run", TENURED_STATE_DIR: "state" };
    const own = Object.entries(directories).map(([key, name]) => [key, join(this.directory, name)]);
    const child = spawn(program, ["--socket", this.socket, "--upstream", this.#options.upstream ?? "embedded:"], {
      env: { ...process.env, ...Object.fromEntries(own), ...this.#options.env, TENURED_CONFIG: process.env["TENURED_CONFIG"] ?? "/dev/null" },
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#child = child;
    let failure: Error | undefined;
    child.once("error", (error) => (failure = error));
    child.stderr.on("data", (chunk: Buffer) => (this.#log = (this.#log + chunk.toString()).slice(-(64 << 10))));
    const client = new Client(this.socket);
    for (const until = performance.now() + READY_MS; ; ) {
      try {
        await client.standing("leader", "ready");
        return;
      } catch (error) {
        const hasEnded = child.exitCode !== null || child.signalCode !== null;
        if (failure !== undefined || hasEnded || performance.now() > until) {
          throw new AgentUnavailable(`${program} does not start: ${failure?.message ?? this.#log}`, { cause: error });
        }
      }
      await new Promise((resolve) => setTimeout(resolve, PACE_MS));
    }
  }

  /** Sends a signal, such as SIGSTOP, SIGCONT, or SIGUSR2, which ends it but keeps its holds for the next `start`. */
  signal(signal: NodeJS.Signals): void {
    const child = this.#child;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    // Not by the child's own `kill`, which in Deno works once.
    process.kill(child.pid, signal);
  }

  /** Waits until it has ended. */
  async ended(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    await new Promise<void>((resolve) => child.once("exit", () => resolve()));
  }

  /** SIGKILL: holds survive until the next `start`, or their end. */
  async kill(): Promise<void> {
    this.signal("SIGKILL");
    await this.ended();
  }

  /** SIGUSR2 and a new start, as a service manager restarts it. */
  async restart(): Promise<void> {
    this.signal("SIGUSR2");
    await this.ended();
    await this.start();
  }

  /** SIGTERM: releases everything. */
  async stop(): Promise<void> {
    this.signal("SIGTERM");
    await this.ended();
  }

  async close(): Promise<void> {
    this.signal("SIGCONT");
    await this.kill();
    rmSync(this.directory, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { until } from "./until.js";

/** A Redis on a free loopback port. */
export class Redis implements AsyncDisposable {
  readonly #directory = mkdtempSync(join(tmpdir(), "tenure-redis-"));
  readonly #port: number;
  #child: ChildProcess | undefined;

  private constructor(port: number) {
    this.#port = port;
  }

  static async start(): Promise<Redis> {
    const port = await new Promise<number>((resolve) => {
      const server = createServer().listen(0, "127.0.0.1", () => {
        const { port } = server.address() as AddressInfo;
        server.close(() => resolve(port));
      });
    });
    const redis = new Redis(port);
    await redis.start();
    return redis;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.#port}`;
  }

  /** Starts it empty. */
  async start(): Promise<void> {
    const settings = ["--port", String(this.#port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--jemalloc-bg-thread", "no", "--dir", this.#directory];
    this.#child = spawn("redis-server", settings, { stdio: "ignore" });
    await until("Redis to answer", () => this.#answers());
  }

  signal(signal: NodeJS.Signals): void {
    const child = this.#child;
    if (child?.pid !== undefined && child.exitCode === null && child.signalCode === null) process.kill(child.pid, signal);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.signal("SIGKILL");
    await until("Redis to end", () => child?.exitCode !== null || child.signalCode !== null);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #answers(): Promise<boolean> {
    return new Promise((resolve) => {
      const socket = connect(this.#port, "127.0.0.1", () => socket.write("PING\r\n"));
      socket.setTimeout(1000);
      const end = (answers: boolean) => (): void => {
        socket.destroy();
        resolve(answers);
      };
      socket.on("data", end(true)).on("error", end(false)).on("timeout", end(false)).on("end", end(false));
    });
  }
}

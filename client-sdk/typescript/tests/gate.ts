import { connect, createServer, type Server, type Socket } from "node:net";

/** A socket before the agent's that loses answers, or keeps everything to itself. */
export class Gate implements AsyncDisposable {
  /** Answers that it lost. */
  caught = 0;
  /** Event streams that it has passed on. */
  streams = 0;
  readonly path: string;
  readonly #server: Server;
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  #toLose = 0;
  #silent = false;

  private constructor(path: string, agent: string) {
    this.path = path;
    this.#server = createServer((client) => this.#pass(client, connect(agent)));
  }

  static async before(agent: string): Promise<Gate> {
    const gate = new Gate(`${agent}.gate`, agent);
    await new Promise<void>((resolve) => gate.#server.listen(gate.path, resolve));
    return gate;
  }

  /** The next answers do not arrive; their connections break. Event streams are spared. */
  loseReplies(count: number): void {
    this.#toLose = count;
  }

  /** Nothing comes from the agent until it is false again. */
  setSilent(silent: boolean): void {
    this.#silent = silent;
    for (const [, agent] of this.#pairs) silent ? agent.pause() : agent.resume();
  }

  /** Breaks every connection. */
  cut(): void {
    for (const pair of this.#pairs) pair.forEach((socket) => socket.destroy());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #pass(client: Socket, agent: Socket): void {
    const pair = [client, agent] as const;
    this.#pairs.add(pair);
    let isStream = false;
    const end = (): void => {
      pair.forEach((socket) => socket.destroy());
      this.#pairs.delete(pair);
    };
    client.on("data", (bytes) => agent.write(bytes));
    agent.on("data", (bytes) => {
      if (!isStream && bytes.includes("text/event-stream")) {
        isStream = true;
        this.streams++;
      }
      if (this.#toLose === 0 || isStream) return void client.write(bytes);
      this.#toLose--;
      this.caught++;
      end();
    });
    for (const socket of pair) socket.on("error", end).on("close", end);
    if (this.#silent) agent.pause();
  }
}

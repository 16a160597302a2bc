import { connect, type Socket } from "node:net";

import { AgentUnavailable, Refused, UpstreamUnavailable } from "../errors.js";
import { parse, type Problem } from "../wire.js";
import { deadline } from "./deadline.js";
import { NoHttp, ResponseParser, type Head } from "./response.js";
import type { Found } from "./socket.js";

/** How long a call tries to connect while more connections wait than the agent can take. */
const CONNECT_PATIENCE_MS = 4000;
/** How long a call waits for an agent that is restarted. */
const RESTART_PATIENCE_MS = 1000;
const PACE_MS = 20;
/** Shorter than the 5 s after which the agent closes an idle connection. */
const IDLE_MS = 4000;
const IDLE_CONNECTIONS_MAX = 32;
/** Replies larger than this are refused as not an agent's, bytes. */
const REPLY_SIZE_MAX = 16 << 20;

export interface CallOptions {
  /** Twice does the same as once, so that a call whose fate is unknown may be sent again. */
  readonly repeatable: boolean;
  /** How long to wait for the answer. */
  readonly deadlineMs: number;
  /** Gives up; the connection is closed. */
  readonly signal?: AbortSignal | undefined;
}

export interface Reply {
  readonly status: number;
  readonly text: string;
}

/**
 * What a stream needs of a socket. No type that a program gets from this package names one of Node's, so that a program
 * compiles without them.
 */
export interface Connection {
  readonly destroyed: boolean;
  on(event: "data", take: (chunk: Uint8Array) => void): this;
  on(event: "end" | "close" | "error", take: () => void): this;
  unref(): void;
  pause(): void;
  resume(): void;
  destroy(): void;
}

/** A connection whose head of an answer has come; `rest` is the beginning of the body. */
export interface Opened {
  readonly socket: Connection;
  readonly parser: ResponseParser;
  readonly rest: Uint8Array[];
}

interface Failure {
  readonly cause: Error;
  readonly neverSent: boolean;
}

/** Requests and replies over the agent's socket. Idle connections do not keep the program running. */
export class Transport {
  readonly #found: Found;
  readonly #idle: Socket[] = [];

  constructor(found: Found) {
    this.#found = found;
  }

  get path(): string {
    return this.#found.path;
  }

  /** A reply that is no refusal. */
  async call(method: string, target: string, body: string | undefined, options: CallOptions): Promise<Reply> {
    const since = performance.now();
    let repeats = options.repeatable ? 1 : 0;
    for (;;) {
      options.signal?.throwIfAborted();
      const left = options.deadlineMs - (performance.now() - since);
      const outcome = await this.#exchange(this.#head(method, target, body), options, left);
      if ("status" in outcome) {
        if (outcome.status < 300) return outcome;
        const refusal = this.#refusal(outcome);
        if (await isWorthAnotherTry(refusal, since, options)) continue;
        throw refusal;
      }
      const error = this.#unavailable(outcome.cause, outcome.neverSent, options.deadlineMs);
      if (error.neverSent && (await isWorthAnotherTry(error, since, options))) continue;
      // The agent closed a connection that it found idle while this call was on its way.
      if (error.neverSent || error.code === "ETIMEDOUT" || error.code === "EPROTO" || repeats === 0) throw error;
      repeats--;
    }
  }

  /** Opens a stream on a connection of its own. */
  async open(target: string, headers: readonly string[], deadlineMs: number): Promise<Opened> {
    const since = performance.now();
    for (;;) {
      const left = deadlineMs - (performance.now() - since);
      const parser = new ResponseParser();
      const outcome = await this.#first(this.#head("GET", target, undefined, headers), parser, left);
      if ("rest" in outcome) return outcome;
      const error = "status" in outcome ? this.#refusal(outcome) : this.#unavailable(outcome.cause, outcome.neverSent, deadlineMs);
      if (!(await isWorthAnotherTry(error, since, { repeatable: true, deadlineMs }))) throw error;
    }
  }

  /** The connection failed, as an error that names the way out. */
  broken(cause: Error, deadlineMs: number): AgentUnavailable {
    return this.#unavailable(cause, false, deadlineMs);
  }

  #head(method: string, target: string, body: string | undefined, headers: readonly string[] = []): string {
    const lines = [`${method} ${target} HTTP/1.1`, "host: localhost", ...headers];
    if (body !== undefined) lines.push("content-type: application/json", `content-length: ${Buffer.byteLength(body)}`);
    return `${lines.join("\r\n")}\r\n\r\n${body ?? ""}`;
  }

  #exchange(request: string, options: CallOptions, left: number): Promise<Reply | Failure> {
    const pooled = options.repeatable ? this.#takeIdle() : undefined;
    const parser = new ResponseParser();
    const chunks: Uint8Array[] = [];
    let size = 0;
    return new Promise((resolve, reject) => {
      const finish = talk(pooled ?? connect(this.path), request, parser, left, {
        body: (part) => {
          chunks.push(part);
          size += part.length;
          if (size > REPLY_SIZE_MAX) throw new NoHttp(`its reply is larger than ${REPLY_SIZE_MAX} bytes`);
          return parser.done;
        },
        done: (socket) => {
          options.signal?.removeEventListener("abort", abort);
          if (parser.reusable) this.#keepIdle(socket);
          else socket.destroy();
          resolve({ status: (parser.head as Head).status, text: Buffer.concat(chunks).toString("utf8") });
        },
        failed: (cause, neverSent) => {
          options.signal?.removeEventListener("abort", abort);
          resolve({ cause, neverSent });
        },
      });
      const abort = (): void => {
        finish();
        reject(options.signal?.reason);
      };
      options.signal?.addEventListener("abort", abort, { once: true });
    });
  }

  /** Waits for the head of an answer, and for the whole of a refusal. */
  #first(request: string, parser: ResponseParser, left: number): Promise<Opened | Reply | Failure> {
    const rest: Uint8Array[] = [];
    const isRefusal = (): boolean => (parser.head?.status ?? 0) >= 300;
    return new Promise((resolve) => {
      talk(connect(this.path), request, parser, left, {
        body: (part) => {
          rest.push(part);
          return isRefusal() ? parser.done : parser.head !== undefined;
        },
        done: (socket) => {
          if (!isRefusal()) {
            // Nobody listens for a moment.
            socket.pause();
            return resolve({ socket, parser, rest });
          }
          socket.destroy();
          resolve({ status: (parser.head as Head).status, text: Buffer.concat(rest).toString("utf8") });
        },
        failed: (cause, neverSent) => resolve({ cause, neverSent }),
      });
    });
  }

  #takeIdle(): Socket | undefined {
    for (let socket = this.#idle.pop(); socket !== undefined; socket = this.#idle.pop()) {
      socket.removeAllListeners();
      socket.setTimeout(0);
      if (!socket.destroyed && socket.readable && socket.writable) {
        socket.ref();
        return socket;
      }
      socket.on("error", () => {});
      socket.destroy();
    }
    return undefined;
  }

  #keepIdle(socket: Socket): void {
    if (this.#idle.length === IDLE_CONNECTIONS_MAX || socket.destroyed) {
      socket.destroy();
      return;
    }
    const drop = (): void => {
      const at = this.#idle.indexOf(socket);
      if (at >= 0) this.#idle.splice(at, 1);
      socket.destroy();
    };
    socket.on("error", drop).on("close", drop).on("end", drop).on("data", drop).on("timeout", drop);
    socket.setTimeout(IDLE_MS);
    socket.unref();
    this.#idle.push(socket);
  }

  #refusal({ status, text }: Reply): Refused | AgentUnavailable {
    let problem: Partial<Problem> | undefined;
    try {
      problem = parse(text) as Partial<Problem>;
    } catch {
      // Told below.
    }
    if (typeof problem?.code !== "string" || typeof problem.detail !== "string") {
      return this.#foreign(`status ${status} with ${JSON.stringify(text.slice(0, 200))}`);
    }
    const Kind = problem.code === "upstream_unavailable" ? UpstreamUnavailable : Refused;
    return new Kind(problem as Problem);
  }

  #foreign(what: string, cause?: Error): AgentUnavailable {
    const text = `${this.path} does not answer like an agent: ${what}; is it the socket of another program?`;
    return new AgentUnavailable(text, { cause, code: "EPROTO" });
  }

  #unavailable(cause: Error, neverSent: boolean, deadlineMs: number): AgentUnavailable {
    if (cause instanceof NoHttp) return this.#foreign(cause.message, cause);
    const code = (cause as NodeJS.ErrnoException).code;
    return new AgentUnavailable(describe(code, this.#found, deadlineMs), { cause, code, neverSent });
  }
}

interface Listener {
  /** Takes bytes of the body, none when only the head has come; returns true if that is enough. */
  readonly body: (part: Uint8Array) => boolean;
  readonly done: (socket: Socket) => void;
  readonly failed: (cause: Error, neverSent: boolean) => void;
}

/** Sends one request and has `listener` told what comes, once. Returns how to give up without a word. */
function talk(socket: Socket, request: string, parser: ResponseParser, left: number, listener: Listener): () => void {
  const connected = !socket.connecting;
  let sent = connected;
  let bytes = 0;
  const stop = (): void => {
    cancel();
    socket.removeAllListeners();
    // A connection may still fail when nobody listens any more.
    socket.on("error", () => {});
  };
  const fail = (cause: Error): void => {
    stop();
    socket.destroy();
    listener.failed(cause, !sent);
  };
  const expire = (): void => fail(Object.assign(new Error("no answer in time"), { code: "ETIMEDOUT" }));
  const cancel = deadline(Math.max(0, left), () => bytes, expire);
  const take = (chunk: Uint8Array): void => {
    bytes += chunk.length;
    try {
      const parts = parser.feed(chunk);
      let enough = false;
      for (const part of parts) enough = listener.body(part) || enough;
      if (parts.length === 0 && parser.head !== undefined) enough = listener.body(Buffer.alloc(0));
      if (!enough) return;
    } catch (error) {
      return fail(error as Error);
    }
    stop();
    listener.done(socket);
  };
  const gone = (): void => {
    parser.end();
    if (!parser.done) return fail(Object.assign(new Error("the connection ended"), { code: "ECONNRESET" }));
    stop();
    listener.done(socket);
  };
  socket.on("data", take).on("error", fail).on("end", gone).on("close", gone);
  const send = (): void => {
    sent = true;
    socket.write(request);
  };
  if (connected) send();
  else socket.once("connect", send);
  return () => {
    stop();
    socket.destroy();
  };
}

/** Waits a little and returns true if the call, which did not reach an agent, is to be made again. */
async function isWorthAnotherTry(error: unknown, since: number, options: CallOptions): Promise<boolean> {
  let patience: number | undefined;
  if (error instanceof Refused && error.problem.code === "stopping") patience = RESTART_PATIENCE_MS;
  if (error instanceof AgentUnavailable && error.code === "ECONNREFUSED") patience = RESTART_PATIENCE_MS;
  if (error instanceof AgentUnavailable && error.code === "EAGAIN") patience = CONNECT_PATIENCE_MS;
  if (patience === undefined) return false;
  if (performance.now() - since >= Math.min(patience, options.deadlineMs)) return false;
  // Somebody waits for the answer, so that this keeps the program running.
  await new Promise((resolve) => setTimeout(resolve, PACE_MS));
  return options.signal?.aborted !== true;
}

function describe(code: string | undefined, { path, besides }: Found, deadlineMs: number): string {
  switch (code) {
    case "ENOENT":
      return (
        `there is no agent socket at ${path}${besides.map((place) => `, nor at ${place}`).join("")}: start the agent with ` +
        "`tenured` (as a service: `systemctl start tenured`), or name its socket in TENURE_SOCKET"
      );
    case "ECONNREFUSED":
      return `no agent listens at ${path} any more: start it again with \`tenured\` (as a service: \`systemctl restart tenured\`)`;
    case "EACCES":
    case "EPERM":
      return (
        `you may not open the agent's socket at ${path}: \`tenure doctor\` says how to be let in; ` +
        "or start an agent of your own and name its socket in TENURE_SOCKET"
      );
    case "EINVAL":
    case "ENAMETOOLONG":
      return `${path} cannot be a socket: its path must be shorter than 108 bytes`;
    case "ENOTSOCK":
      return `${path} is no socket: name the agent's in TENURE_SOCKET`;
    case "EAGAIN":
      return `the agent at ${path} has too many connections waiting to be taken: try again, and see who makes them with \`ss -xp\``;
    case "ETIMEDOUT":
      return `the agent at ${path} gave no answer within ${deadlineMs / 1000} s: it may be stopped; see \`tenure doctor\``;
    default:
      return `the agent at ${path} went away before it answered: try again`;
  }
}

import type { AgentUnavailable } from "../errors.js";
import { parseEvent, type Event } from "../wire.js";
import { SseParser } from "./sse.js";
import type { Connection, Opened, Transport } from "./transport.js";

/** An event, and its number for `Last-Event-ID`. */
export interface Received {
  readonly id: number | undefined;
  readonly event: Event;
}

/** How a stream ended. */
export type StreamEnd = "closed" | "unreadable";

/**
 * Events of a session as they happen. The stream has a connection of its own, which does not keep the program
 * running; a session with a `connection` tether lives while it is open.
 */
export class EventStream {
  readonly #socket: Connection;
  readonly #opened: Opened;
  readonly #sse = new SseParser();

  private constructor(opened: Opened) {
    this.#opened = opened;
    this.#socket = opened.socket;
    this.#socket.on("error", () => {});
    this.#socket.unref();
    this.#socket.pause();
  }

  static async open(transport: Transport, target: string, lastEventId: number | undefined, deadlineMs: number): Promise<EventStream> {
    const headers = ["accept: text/event-stream"];
    if (lastEventId !== undefined) headers.push(`last-event-id: ${lastEventId}`);
    const opened = await transport.open(target, headers, deadlineMs);
    const kind = opened.parser.head?.headers.get("content-type");
    if (!kind?.startsWith("text/event-stream")) {
      opened.socket.destroy();
      throw transport.broken(Object.assign(new Error(`its event stream is a ${kind}`), { code: "EPROTO" }), deadlineMs) as AgentUnavailable;
    }
    return new EventStream(opened);
  }

  /** Hands every event to `take` until the stream ends. Nothing is lost before it is called. */
  read(take: (received: Received) => void): Promise<StreamEnd> {
    return new Promise((resolve) => {
      const end = (how: StreamEnd): void => {
        this.close();
        resolve(how);
      };
      const body = (parts: Uint8Array[]): void => {
        try {
          for (const part of parts) {
            for (const { id, event: name, data } of this.#sse.feed(part)) {
              const event = parseEvent(name, data);
              if (event !== undefined) take({ id, event });
            }
          }
        } catch {
          return end("unreadable");
        }
        if (this.#opened.parser.done) end("closed");
      };
      this.#socket.on("data", (chunk) => {
        let parts: Uint8Array[];
        try {
          parts = this.#opened.parser.feed(chunk);
        } catch {
          return end("unreadable");
        }
        body(parts);
      });
      this.#socket.on("end", () => end("closed")).on("close", () => end("closed"));
      if (this.#socket.destroyed) return end("closed");
      body(this.#opened.rest.splice(0));
      this.#socket.resume();
    });
  }

  close(): void {
    this.#socket.destroy();
  }
}

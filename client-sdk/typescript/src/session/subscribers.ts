import { awake } from "../timers.js";
import type { Event } from "../wire.js";

/** Events that a reader may leave unread; a slower one is told how many it missed. */
export const EVENTS_MAX = 256;

/** Hands the session's events to whoever reads them. */
export class Subscribers {
  readonly #readers = new Set<Reader>();
  #ended = false;

  send(event: Event): void {
    for (const reader of this.#readers) reader.push(event);
  }

  /** No more events will come. */
  end(): void {
    this.#ended = true;
    for (const reader of this.#readers) reader.end();
    this.#readers.clear();
  }

  /** Events from now on. */
  subscribe(): AsyncIterableIterator<Event> {
    const reader = new Reader(() => this.#readers.delete(reader));
    if (this.#ended) reader.end();
    else this.#readers.add(reader);
    return reader;
  }
}

class Reader implements AsyncIterableIterator<Event> {
  readonly #leave: () => void;
  readonly #events: Event[] = [];
  #missed = 0;
  #ended = false;
  #wake: (() => void) | undefined;

  constructor(leave: () => void) {
    this.#leave = leave;
  }

  push(event: Event): void {
    if (this.#events.length === EVENTS_MAX) {
      this.#events.shift();
      this.#missed++;
    }
    this.#events.push(event);
    this.#wake?.();
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  async next(): Promise<IteratorResult<Event>> {
    for (;;) {
      if (this.#missed > 0) {
        const count = this.#missed;
        this.#missed = 0;
        return { done: false, value: { type: "missed", count } };
      }
      const event = this.#events.shift();
      if (event !== undefined) return { done: false, value: event };
      if (this.#ended) return { done: true, value: undefined };
      await awake(new Promise<void>((resolve) => (this.#wake = resolve)));
      this.#wake = undefined;
    }
  }

  async return(): Promise<IteratorResult<Event>> {
    this.#leave();
    this.#events.length = 0;
    this.end();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

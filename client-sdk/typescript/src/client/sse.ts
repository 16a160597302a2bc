// Server-sent events, as far as the agent sends them: the parsing rules of the HTML standard, section 9.2.6,
// without `retry:`, and with ids that are numbers.

/** An event larger than this is refused, characters. The largest is a snapshot of 4095 holds. */
export const FRAME_SIZE_MAX = 8 << 20;

export interface Frame {
  /** The event's number, if the agent gave it one. */
  readonly id: number | undefined;
  readonly event: string;
  readonly data: string;
}

/** Puts chunks of a stream together to frames. */
export class SseParser {
  readonly #decoder = new TextDecoder();
  /** A line whose end has not come, in pieces, so that a long one is searched once. */
  #line: string[] = [];
  #size = 0;
  #id: number | undefined;
  #event = "";
  #data: string[] = [];

  /** Takes the next chunk, cut anywhere; returns the frames that it completes. */
  feed(chunk: Uint8Array): Frame[] {
    const frames: Frame[] = [];
    const [first, ...rest] = this.#decoder.decode(chunk, { stream: true }).split("\n");
    this.#grow(first as string);
    for (const next of rest) {
      const line = this.#line.join("");
      this.#take(line.endsWith("\r") ? line.slice(0, -1) : line, frames);
      this.#line = [];
      this.#grow(next);
    }
    return frames;
  }

  #grow(piece: string): void {
    this.#line.push(piece);
    this.#size += piece.length;
    if (this.#size > FRAME_SIZE_MAX) throw new Error(`an event is larger than ${FRAME_SIZE_MAX} characters`);
  }

  #take(line: string, frames: Frame[]): void {
    if (line === "") {
      if (this.#data.length > 0) frames.push({ id: this.#id, event: this.#event, data: this.#data.join("\n") });
      this.#id = undefined;
      this.#event = "";
      this.#data = [];
      this.#size = 0;
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "id") this.#id = /^\d+$/.test(value) ? Number(value) : undefined;
    else if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    // Anything else is a comment, which has no name, or a field of a later version.
  }
}

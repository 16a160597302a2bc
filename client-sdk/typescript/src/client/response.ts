// HTTP/1.1 answers, as far as the agent sends them. Node's own client has time-outs of several sorts, and other
// runtimes have others; a wait must meet none of them.

const HEAD_SIZE_MAX = 64 << 10;
const HEAD_END = Buffer.from("\r\n\r\n");
const LINE_END = Buffer.from("\r\n");

export interface Head {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
}

/** The answer is no HTTP/1.1. */
export class NoHttp extends Error {}

/** Takes one answer apart. */
export class ResponseParser {
  head: Head | undefined;
  /** The answer is complete. */
  done = false;
  /** The end of the connection ends the body. */
  #untilClose = false;
  #chunked = false;
  /** Bytes of the body, or of this chunk of it, that have not come. */
  #missing = 0;
  /** The empty line behind a chunk has not come. */
  #inChunk = false;
  #pending: Buffer = Buffer.alloc(0);

  /** True if the connection can take another request after this answer. */
  get reusable(): boolean {
    return this.done && !this.#untilClose && this.head?.headers.get("connection")?.toLowerCase() !== "close";
  }

  /** Takes the next bytes; returns those of the body among them. */
  feed(bytes: Uint8Array): Uint8Array[] {
    this.#pending = Buffer.concat([this.#pending, bytes]);
    const body: Uint8Array[] = [];
    while (!this.done && (this.head === undefined ? this.#takeHead() : this.#takeBody(body)));
    return body;
  }

  /** The connection has ended. */
  end(): void {
    if (this.#untilClose) this.done = true;
  }

  #takeHead(): boolean {
    const end = this.#pending.indexOf(HEAD_END);
    if (end < 0) {
      if (this.#pending.length > HEAD_SIZE_MAX) throw new NoHttp("its head does not end");
      return false;
    }
    const [first, ...lines] = this.#take(end + HEAD_END.length).toString("latin1", 0, end).split("\r\n");
    const status = /^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(first as string)?.[1];
    if (status === undefined) throw new NoHttp(`it begins with ${JSON.stringify((first as string).slice(0, 80))}`);
    const headers = new Map<string, string>();
    for (const line of lines) {
      const colon = line.indexOf(":");
      if (colon > 0) headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
    }
    // Nothing but a promise of the answer.
    if (status.startsWith("1")) return true;
    this.head = { status: Number(status), headers };
    const length = headers.get("content-length");
    if (headers.get("transfer-encoding")?.toLowerCase() === "chunked") {
      this.#chunked = true;
    } else if (length !== undefined && /^\d+$/.test(length)) {
      this.#missing = Number(length);
      this.done = this.#missing === 0;
    } else if (status === "204" || status === "304") {
      this.done = true;
    } else {
      this.#untilClose = true;
      this.#missing = Number.MAX_SAFE_INTEGER;
    }
    return true;
  }

  #takeBody(body: Uint8Array[]): boolean {
    if (this.#chunked && this.#missing === 0) return this.#takeChunkHead();
    if (this.#pending.length === 0) return false;
    const part = this.#take(Math.min(this.#missing, this.#pending.length));
    this.#missing -= part.length;
    body.push(part);
    if (!this.#chunked && this.#missing === 0) this.done = true;
    return true;
  }

  #takeChunkHead(): boolean {
    if (this.#inChunk) {
      if (this.#pending.length < 2) return false;
      this.#take(2);
      this.#inChunk = false;
    }
    const end = this.#pending.indexOf(LINE_END);
    if (end < 0) {
      if (this.#pending.length > HEAD_SIZE_MAX) throw new NoHttp("a chunk of its answer has no length");
      return false;
    }
    const text = this.#pending.toString("latin1", 0, end).split(";")[0] as string;
    if (!/^[0-9a-fA-F]{1,8}$/.test(text)) throw new NoHttp("a chunk of its answer has no length");
    const size = Number.parseInt(text, 16);
    if (size > 0) {
      this.#take(end + 2);
      this.#missing = size;
      this.#inChunk = true;
      return true;
    }
    // The agent sends no trailers.
    if (this.#pending.length < end + 4) return false;
    this.#take(end + 4);
    this.done = true;
    return true;
  }

  #take(length: number): Buffer {
    const taken = this.#pending.subarray(0, length);
    this.#pending = this.#pending.subarray(length);
    return taken;
  }
}

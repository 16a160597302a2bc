// The gateway's answers and its change stream. The key is sent in a header: it is in no address, so in no log.

const KEY = "tenure-key";
/** How long an answer may take. */
const WITHIN_MS = 15_000;
/** The gateway gives a sign of life each 15 s; a stream that gives none for so long is broken. */
const SILENT_MS = 40_000;
const RETRY_MS = [1_000, 2_000, 4_000, 8_000, 15_000, 30_000];
/** A stream that went on for so long and then ended is opened again at once. */
const LONG_MS = 60_000;
/** An event that is longer than this is none of the gateway's. */
const EVENT_MAX = 1 << 20;

/** An answer that is no success. */
export class Refused extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }

  static async from(response) {
    // The gateway sends nobody elsewhere; a proxy before it does, to sign people in.
    if (response.type === "opaqueredirect") return new Refused(401, "", "the proxy before the gateway asks to sign in again");
    let problem = {};
    try {
      problem = await response.json();
    } catch {
      // Something between here and the gateway answered; the status has to do.
    }
    return new Refused(response.status, String(problem.code ?? ""), String(problem.detail ?? `the gateway answered ${response.status}`));
  }
}

export function key() {
  return sessionStorage.getItem(KEY);
}

export function setKey(text) {
  sessionStorage.setItem(KEY, text);
}

export function forgetKey() {
  sessionStorage.removeItem(KEY);
}

/** Takes the key out of an address that ends in #key=KEY, as `tenured-gateway page` prints it; true if there was one. */
function takeKey() {
  const shown = /^#key=([\w-]+)$/.exec(location.hash);
  if (!shown) return false;
  setKey(shown[1]);
  history.replaceState(null, "", location.pathname);
  return true;
}

takeKey();
// A link with another key, in a tab that is open.
addEventListener("hashchange", () => takeKey() && location.reload());

function headers() {
  const shown = key();
  return shown ? { Authorization: `Bearer ${shown}` } : {};
}

/** How far this machine's clock is behind the gateway's, ms; a difference that the header cannot show is none. */
let behind = 0;

/** ms since 1970 by the gateway's clock, by which it dates what it tells. */
export function now() {
  return Date.now() + behind;
}

function compareClocks(response) {
  const difference = Date.parse(response.headers.get("Date") ?? "") - Date.now();
  behind = Math.abs(difference) > 3_000 ? difference : 0;
}

/** The JSON at that path. Throws Refused, or what fetch throws. */
export function ask(path, signal) {
  return answerOf(path, { headers: headers(), signal });
}

/** The JSON of the answer to a call that changes something. Throws as ask does; then it may have happened. */
export function post(path, body) {
  return answerOf(path, { method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

async function answerOf(path, { signal, ...call }) {
  const late = AbortSignal.timeout(WITHIN_MS);
  const response = await fetch(path, {
    ...call,
    cache: "no-store",
    redirect: "manual",
    referrerPolicy: "no-referrer",
    signal: signal ? AbortSignal.any([signal, late]) : late,
  });
  if (!response.ok) throw await Refused.from(response);
  compareClocks(response);
  return response.json();
}

/** Parts an event stream: takes texts, and calls back with the name and the data of each event. */
export function parser(onEvent) {
  let rest = "";
  let name = "message";
  let data = [];
  return (text) => {
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    if (rest.length > EVENT_MAX) throw new Error("an event without an end");
    for (const line of lines) {
      if (line === "") {
        if (data.length > 0) onEvent(name, data.join("\n"));
        name = "message";
        data = [];
      } else if (line.startsWith("event:")) {
        name = line.slice(6).trim();
      } else if (line.startsWith("data:")) {
        data.push(line.slice(5).replace(/^ /, ""));
      }
    }
  };
}

/**
 * Follows the changes until it is stopped: opens the stream again when it ends, later each time.
 * `onState` is told "connecting", "live" or "waiting" with the ms until the next try; `onEvent` the name and the
 * JSON of each event; `onRefused` why the gateway will not have it, after which nothing is tried any more.
 */
export class Stream {
  #callbacks;
  #ending = null;
  #failures = 0;
  #timer = 0;

  constructor(callbacks) {
    this.#callbacks = callbacks;
  }

  get isStarted() {
    return this.#ending !== null;
  }

  start() {
    this.stop();
    this.#ending = new AbortController();
    this.#run(this.#ending.signal);
  }

  stop() {
    this.#ending?.abort();
    this.#ending = null;
    clearTimeout(this.#timer);
  }

  async #run(stopped) {
    const { onState, onRefused } = this.#callbacks;
    onState("connecting");
    const began = performance.now();
    try {
      await this.#read(stopped);
      // An orderly end: a proxy has to sign the reader in again, or the gateway stops.
      if (!stopped.aborted && performance.now() - began > LONG_MS) return this.#run(stopped);
    } catch (error) {
      if (stopped.aborted) return;
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        this.stop();
        onRefused(error);
        return;
      }
    }
    if (stopped.aborted) return;
    const pause = RETRY_MS[Math.min(this.#failures, RETRY_MS.length - 1)];
    this.#failures += 1;
    // Pages that lost the same gateway do not come back all at once.
    const wait = Math.round(pause * (0.75 + Math.random() / 2));
    onState("waiting", wait);
    this.#timer = setTimeout(() => this.#run(stopped), wait);
  }

  async #read(stopped) {
    const { onState, onEvent } = this.#callbacks;
    const silent = new AbortController();
    const response = await fetch("/v1/changes", {
      headers: { ...headers(), Accept: "text/event-stream" },
      cache: "no-store",
      redirect: "manual",
      referrerPolicy: "no-referrer",
      signal: AbortSignal.any([stopped, silent.signal]),
    });
    if (!response.ok) throw await Refused.from(response);
    const parse = parser((name, data) => onEvent(name, JSON.parse(data)));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    onState("live");
    for (;;) {
      const timer = setTimeout(() => silent.abort(), SILENT_MS);
      const { value, done } = await reader.read().finally(() => clearTimeout(timer));
      if (done) return;
      this.#failures = 0;
      parse(value);
    }
  }
}

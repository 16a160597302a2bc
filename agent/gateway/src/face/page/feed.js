// The changes, newest first. Stands still while somebody reads it.

import { byId, make, setText } from "./dom.js";
import { count, counted, span, time, visible } from "./format.js";
import { write } from "./place.js";

/** Most changes that are kept. */
const KEPT_MAX = 300;
/** How often the list takes up what has come. */
const SHOW_EVERY_MS = 400;

/** What a change means to those who look: the colour of its word. */
const TONE = {
  granted: "held",
  waiting: "waiting",
  queued: "waiting",
  expired: "jeopardy",
  lost: "jeopardy",
  preempted: "jeopardy",
  revoked: "jeopardy",
  missed: "jeopardy",
};

export class Feed {
  /** Newest first. */
  #changes = [];
  /** Newest first, not shown yet. */
  #fresh = [];
  #seen = 0;
  #timer = 0;
  #isPaused = false;
  #isRead = false;

  constructor() {
    const list = byId("feed");
    for (const [event, isRead] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]]) {
      list.querySelector(".scroll").addEventListener(event, () => {
        this.#isRead = isRead;
        this.#show();
      });
    }
    byId("pause").addEventListener("click", () => {
      this.#isPaused = !this.#isPaused;
      byId("pause").setAttribute("aria-pressed", String(this.#isPaused));
      this.#show();
    });
    byId("fresh").addEventListener("click", () => {
      this.#show(true);
      list.querySelector(".scroll").scrollTop = 0;
      byId("pause").focus();
    });
  }

  /** How many changes came since the page was opened. */
  get seen() {
    return this.#seen;
  }

  /** The changes of a resource that are kept, newest first. */
  of({ kind, name, tenant }) {
    const all = [...this.#fresh, ...this.#changes];
    return all.filter((change) => change.kind === kind && change.name === name && change.tenant === tenant);
  }

  add(change) {
    this.#seen += 1;
    this.#fresh.unshift({ ...change, number: this.#seen });
    this.#fresh.length = Math.min(this.#fresh.length, KEPT_MAX);
    if (this.#timer === 0) {
      this.#timer = setTimeout(() => {
        this.#timer = 0;
        this.#show();
      }, SHOW_EVERY_MS);
    }
  }

  /** Adds changes from before this page listened, without those that it has. */
  past(changes) {
    const known = new Set([...this.#fresh, ...this.#changes].map(changeKey));
    const more = changes.filter((change) => !known.has(changeKey(change)));
    if (more.length === 0) return;
    this.#changes = newestFirst([...this.#changes, ...more]).slice(0, KEPT_MAX);
    byId("changes").replaceChildren(...this.#changes.map((change) => itemOf(change)));
    this.#show();
  }

  /** Changes that this page was too slow for, or that happened while it did not listen. */
  missed(text) {
    this.add({ at: Date.now(), change: "missed", reason: text });
  }

  clear() {
    this.#seen = 0;
    this.#changes = [];
    this.#fresh = [];
    byId("changes").replaceChildren();
    this.#show(true);
  }

  #show(isAsked = false) {
    const stands = !isAsked && (this.#isPaused || this.#isRead);
    if (!stands && this.#fresh.length > 0) {
      byId("changes").prepend(...this.#fresh.map((change) => itemOf(change)));
      this.#changes = [...this.#fresh, ...this.#changes].slice(0, KEPT_MAX);
      this.#fresh = [];
      while (byId("changes").childElementCount > KEPT_MAX) byId("changes").lastElementChild.remove();
    }
    const waiting = this.#fresh.length;
    byId("fresh").hidden = waiting === 0;
    setText(byId("fresh"), waiting === 0 ? "" : `${count(waiting)}${waiting === KEPT_MAX ? "+" : ""} new`);
    setText(byId("pause"), this.#isPaused ? "Go on" : "Pause");
    byId("quiet-feed").hidden = this.#changes.length > 0;
  }
}

/** The identity of a change: the same from the stream, the gateway's memory and the store. */
export function changeKey({ tenant, kind, name, change, token, at }) {
  return JSON.stringify([tenant, kind, name, change, token ?? `at ${at}`]);
}

export function newestFirst(changes) {
  return changes.sort((a, b) => b.at - a.at);
}

/** The end of a hold: its reason, how long it was held, and the exit status of its process. */
function endOf({ reason, by, held_ms: heldMs, exit_status: exitStatus }) {
  const parts = [reason && visible(reason)];
  if (by && !reason?.includes(by)) parts.push(`by ${visible(by)}`);
  if (typeof heldMs === "number") parts.push(`held for ${span(heldMs)}`);
  if (typeof exitStatus === "number") parts.push(`exit status ${exitStatus}`);
  return parts.filter((part) => part).map((part) => make("span", {}, part));
}

/** One change; without its resource where all are of the same. */
export function itemOf(change, isOfOne = false) {
  const at = new Date(change.at);
  const host = change.host && change.host !== "-" ? make("span", { class: "quiet" }, `@${visible(change.host)}`) : null;
  const who = change.holder ? make("bdi", { class: "who" }, visible(change.holder), host) : null;
  const token = change.token !== null && change.token !== undefined ? make("span", { class: "token" }, `#${change.token}`) : null;
  const tone = TONE[change.change] ?? "free";
  const head = make(
    "span",
    { class: "what" },
    make("time", { datetime: at.toISOString(), class: "at" }, time(change.at)),
    make("span", { class: "state", "data-state": tone }, String(change.change)),
  );
  const item = make("li", {}, head);
  if (!isOfOne && change.name !== undefined) {
    const open = { kind: change.kind, name: change.name, tenant: change.tenant };
    const link = make("a", { class: "name", href: write({ view: "changes", search: "", page: 1, open }) });
    link.append(make("span", { class: "kind" }, `${change.kind}/`), make("bdi", {}, visible(change.name)));
    item.append(link);
  }
  const why = make("span", { class: "why" });
  const parts = [who, ...endOf(change), token].filter((part) => part);
  parts.forEach((part, index) => why.append(...(index > 0 ? [" · ", part] : [part])));
  if (parts.length > 0) item.append(why);
  return item;
}

/** "3 changes were missed". */
export function missedText(n) {
  return `${counted(n, "change")} not shown: there were more than this page could read`;
}

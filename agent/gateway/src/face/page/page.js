// The page: asks for what is looked at, shows it, and asks again when something changed.

import { Refused, Stream, ask, forgetKey, key, now, setKey } from "./page/api.js";
import { fillDetail } from "./page/detail.js";
import { byId, keep, make, setAttribute, setText } from "./page/dom.js";
import { Feed, missedText } from "./page/feed.js";
import { count, counted, sentence, span, time } from "./page/format.js";
import { listen } from "./page/keyboard.js";
import { VIEWS, read, write } from "./page/place.js";
import { listenToRevocations } from "./page/revoke.js";
import { ROWS, isOf, readAgents, readPast, readRow, readRows } from "./page/rows.js";
import { NEXT_STEP, WORDS, fillHead, fillRow, keyOf, newRow, tick } from "./page/tables.js";
import { showGateway, state } from "./page/top.js";

/** Between two looks where nothing is told; while something is wrong; and at least, however much changes. */
const LOOK_EVERY_MS = 10_000;
const LOOK_AGAIN_MS = 3_000;
const LOOK_PAUSE_MS = 1_000;
/** The gateway reads names every two seconds: so long after a change they are told. */
const NAMED_AFTER_MS = 3_000;
/** A page that nobody sees for so long needs no stream. */
const HIDDEN_MS = 60_000;
const SEARCH_AFTER_MS = 150;

const feed = new Feed();
const stream = new Stream({ onState: showLive, onEvent: take, onRefused: refuse });

let place = read(location.hash);
/** What the gateway said last: the overview, all agents, and the rows with the place that they are of. */
let overview = null;
let agents = [];
let shown = null;
/** The open resource: a row, null where the key does not show it, undefined while that is not known. */
let open;
/** The store's history of the open resource; null for a key without the right. */
let past = null;
/** Why the last look failed, and whether it was at the gateway itself. */
let failure = null;
let isGatewayAway = false;

/** The stream of changes ended, and is not back. */
let wasLost = false;

let reading = null;
let timer = 0;
let due = Infinity;
let lookedAt = 0;
let changedAt = -Infinity;

// ---- asking

function schedule(at) {
  if (at >= due) return;
  due = at;
  clearTimeout(timer);
  timer = setTimeout(look, Math.max(0, at - performance.now()));
}

/** Looks again because something changed: the more a look costs the gateway, the later. */
function lookSoon() {
  const pause = Math.max(LOOK_PAUSE_MS, 10 * (overview?.scanned_ms ?? 0));
  schedule(Math.max(performance.now() + 200, lookedAt + pause));
}

/** Asks for all that is looked at. What came before is left where something of it fails. */
async function look() {
  clearTimeout(timer);
  due = Infinity;
  reading?.abort();
  const mine = new AbortController();
  reading = mine;
  const at = place;
  try {
    const [of, connected] = await Promise.all([ask("/v1/overview", mine.signal), readAgents(mine.signal)]);
    if (reading !== mine) return;
    [overview, agents, isGatewayAway] = [of, connected, false];
    unlock();
    const found = await readRows(at, agents, mine.signal);
    const row = at.open ? await readRow(at.open, found.rows, mine.signal) : undefined;
    const kept = at.open && may("history") ? await readPast(at.open, mine.signal) : null;
    if (reading !== mine) return;
    shown = { at, readAt: of.read_at, ...found };
    [open, past] = [row, kept];
    failure = null;
  } catch (error) {
    if (reading !== mine) return;
    failure = error;
    isGatewayAway = !(error instanceof Refused);
    if (error instanceof Refused && error.status === 401) {
      reading = null;
      return refuse(error);
    }
  }
  reading = null;
  lookedAt = performance.now();
  show();
  if (document.hidden) return;
  const isWhole = failure === null && isStoreUp() && overview.complete && !wasLost;
  schedule(lookedAt + (isWhole && changedAt + NAMED_AFTER_MS < lookedAt ? LOOK_EVERY_MS : LOOK_AGAIN_MS));
}

function take(event, data) {
  if (event === "missed") feed.missed(missedText(data.missed));
  else if (event === "change") feed.add(data);
  changedAt = performance.now();
  lookSoon();
}

/** Asks for the changes from before the page was opened, or while it did not listen. */
async function readChanges() {
  const asked = key();
  try {
    const { changes } = await ask("/v1/history");
    if (asked === key()) feed.past(changes);
    show();
  } catch {
    // The changes from now on are told all the same.
  }
}

// ---- showing

/** Whether the key has a right. */
function may(right) {
  return overview?.caller.rights.includes(right) ?? false;
}

function isStoreUp() {
  return overview?.gateway.store.state === "up";
}

function show() {
  showGateway(overview, isGatewayAway);
  showNotice();
  showViews();
  showRows();
  showDetail();
  tick(document, now());
}

/** A text with the end of a sentence. */
const ended = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

function noticeText() {
  const shownAt = shown ? ` What you see is what was known at ${time(shown.readAt)}.` : "";
  if (isGatewayAway) return `The gateway does not answer; trying again.${shownAt}`;
  if (overview && !isStoreUp()) {
    const why = overview.gateway.store.error ? `: ${ended(overview.gateway.store.error)}` : ".";
    return `The store does not answer${why} Nothing is granted, and holds are in jeopardy until it does.${shownAt}`;
  }
  if (!failure) return "";
  return `${failure.status === 403 ? "This key may not look at this" : "The gateway cannot say"}: ${ended(failure.message)}${shownAt}`;
}

function showNotice() {
  const text = noticeText();
  setText(byId("notice"), text);
  byId("notice").hidden = text === "";
}

/** How many there are of a view of the control plane; null for others. */
function routing(view) {
  const { mailboxes = 0, runners = 0, proxies = [] } = overview?.control_plane ?? {};
  return { mailboxes, runners, proxies: proxies.length }[view] ?? null;
}

function showViews() {
  const counts = overview?.counts ?? {};
  const more = overview?.complete === false ? "+" : "";
  const kinds = Object.values(VIEWS).filter((kind) => kind);
  const number = (view) => {
    if (!overview) return "";
    if (view === "changes") return count(feed.seen);
    if (routing(view) !== null) return count(routing(view));
    if (view === "agents") return agents instanceof Refused ? "" : count(agents.length);
    const n = view === "all" ? kinds.reduce((sum, kind) => sum + (counts[kind] ?? 0), 0) : (counts[VIEWS[view]] ?? 0);
    return count(n) + more;
  };
  for (const link of document.querySelectorAll(".views a")) {
    const { view } = link.dataset;
    setAttribute(link, "href", write({ view, search: view === "changes" ? "" : place.search, page: 1, open: null }));
    setAttribute(link, "aria-current", view === place.view ? "page" : null);
    setText(link.querySelector(".count"), number(view));
    // Few gateways have a control plane that is used.
    link.parentElement.hidden = routing(view) === 0 && view !== place.view;
  }
  document.body.dataset.view = place.view;
  const [title] = WORDS[place.view];
  const mark = noticeText() === "" ? "" : "▲ ";
  document.title = `${mark}${place.open ? place.open.name : title} · Tenure`;
}

const isShown = () => shown !== null && shown.at.view === place.view;

function showRows() {
  const { view, search, page } = place;
  const [title, one, many] = WORDS[view];
  const [head, table] = [byId("head"), byId("rows")];
  setText(byId("list-title"), title);
  if (head.dataset.view !== view) {
    head.dataset.view = view;
    fillHead(head, view);
    table.replaceChildren();
    byId("scroll").scrollTop = 0;
    table.closest("table").dataset.view = view;
  }
  const isCurrent = isShown() && shown.at.search === search && shown.at.page === page;
  setAttribute(table.closest("table"), "aria-busy", isCurrent ? null : "true");
  if (!isShown()) {
    setText(byId("summary"), "");
    byId("empty").hidden = failure === null;
    if (failure) {
      delete byId("empty").dataset.is;
      byId("empty").replaceChildren(make("p", { class: "what" }, "Not known."), make("p", { class: "quiet" }, "Shown as soon as there is an answer."));
    }
    showPager(0, 0);
    return;
  }
  const { rows, total } = shown;
  const context = { isStoreUp: isStoreUp(), now: now(), link: (row) => write({ ...place, open: row }) };
  keep(table, rows, keyOf, () => newRow(view), (element, row) => {
    fillRow(element, view, row, context);
    setAttribute(element, "aria-current", place.open && isOf(place.open)(row) ? "true" : null);
  });
  const text = search ? `${counted(total, one, many)} with “${search}”` : counted(total, one, many);
  setText(byId("summary"), text);
  showPager(rows.length, total);
  showEmpty(rows.length, total);
  if (isCurrent) speak(`${title}: ${text}, page ${page} of ${pages(total)}`);
}

const pages = (total) => Math.max(1, Math.ceil(total / ROWS));

function showPager(length, total) {
  const { page } = place;
  const last = pages(total);
  const from = (shown?.at.page ?? 1) * ROWS - ROWS;
  setText(byId("range"), length === 0 ? "" : `${count(from + 1)}–${count(from + length)} of ${count(total)}`);
  setText(byId("page-number"), `Page ${count(page)} of ${count(last)}`);
  for (const [id, to] of [["first", 1], ["previous", page - 1], ["next", page + 1], ["last", last]]) {
    const goes = to >= 1 && to <= last && to !== page;
    setAttribute(byId(id), "href", goes ? write({ ...place, open: null, page: to }) : null);
    setAttribute(byId(id), "aria-disabled", goes ? null : "true");
    setAttribute(byId(id), "role", goes ? null : "link");
  }
  setAttribute(byId("pager"), "data-one", last === 1 ? "" : null);
}

function showEmpty(length, total) {
  const { view, search, page } = place;
  const empty = byId("empty");
  empty.hidden = length > 0;
  const is = JSON.stringify([view, search, page, total]);
  if (length > 0 || empty.dataset.is === is) return;
  empty.dataset.is = is;
  const [, one] = WORDS[view];
  if (total > 0) {
    const end = write({ view, search, page: pages(total), open: null });
    empty.replaceChildren(make("p", {}, `There is no page ${count(page)}.`), make("p", {}, make("a", { href: end }, `Go to page ${count(pages(total))}, the last`)));
  } else if (search) {
    const all = write({ view, search: "", page: 1, open: null });
    empty.replaceChildren(make("p", {}, `No ${one} has “${search}” in its name.`), make("p", {}, make("a", { href: all }, "Clear the search")));
  } else if (NEXT_STEP[view]) {
    const [what, how, line] = NEXT_STEP[view];
    empty.replaceChildren(make("p", { class: "what" }, what), make("p", { class: "quiet" }, how), make("pre", {}, make("code", {}, line)));
  }
}

function showDetail() {
  const isOpen = place.open !== null;
  if (byId("detail").hidden === isOpen) byId("detail").hidden = !isOpen;
  setAttribute(document.body, "data-open", isOpen ? "" : null);
  // Over the list, the panel is all there is.
  for (const behind of [document.querySelector(".top"), document.querySelector(".views"), byId("list"), byId("feed")]) {
    behind.inert = isOpen && narrow.matches;
  }
  if (!isOpen) return;
  const row = open === undefined ? shown?.rows.find((row) => row.holders && isOf(place.open)(row)) : open;
  fillDetail(place.open, row, { past, changes: feed.of(place.open) }, { isStoreUp: isStoreUp(), mayRevoke: may("revoke"), closing: write({ ...place, open: null }) });
}

/** Has screen readers say how many there are: after a step of their user's, and else twice a minute at most. */
let spoken = { place: null, at: 0 };
function speak(text) {
  if (spoken.place === place && performance.now() - spoken.at < 30_000) return;
  spoken = { place, at: performance.now() };
  setText(byId("spoken"), text);
}

function showLive(what, wait) {
  const live = byId("live");
  if (what === "waiting") {
    wasLost = true;
    state(live, "down", "not live", `The stream of changes ended; it is tried again in ${span(wait + 999)}`);
  } else if (what === "connecting") {
    // One that was lost stays so until it is back.
    if (!wasLost) state(live, "unknown", "connecting", null);
  } else {
    state(live, "held", "live", null);
    if (wasLost) feed.missed("the stream of changes was broken, and is back: what this gateway did not see meanwhile is not shown");
    wasLost = false;
    readChanges();
    lookSoon();
  }
  setAttribute(document.body, "data-lost", wasLost ? "" : null);
}

// ---- keys of the gateway

function lock(text) {
  stream.stop();
  clearTimeout(timer);
  due = Infinity;
  reading?.abort();
  reading = null;
  [overview, agents, shown, open, past, failure] = [null, [], null, undefined, null, null];
  feed.clear();
  byId("rows").replaceChildren();
  byId("detail").replaceChildren();
  delete byId("detail").dataset.shown;
  document.body.dataset.locked = "";
  byId("sign-in").hidden = false;
  byId("leave").hidden = true;
  for (const id of ["release", "who", "guarantee", "as-of", "spoken"]) setText(byId(id), "");
  state(byId("store"), "unknown", "unknown", null);
  state(byId("live"), "unknown", "signed out", null);
  setText(byId("key-error"), text);
  setAttribute(byId("key"), "aria-invalid", text ? "true" : null);
  document.title = "Sign in · Tenure";
  byId("key").focus();
}

function unlock() {
  const wasLocked = !byId("sign-in").hidden;
  delete document.body.dataset.locked;
  byId("sign-in").hidden = true;
  if (wasLocked) byId("main").focus();
  byId("key").value = "";
  byId("leave").hidden = key() === null;
  if (!stream.isStarted && !document.hidden) stream.start();
}

/** The gateway wants a key, or another one. */
function refuse(error) {
  if (error.status !== 401) return state(byId("live"), "down", "not allowed", error.message);
  if (key() === null && overview !== null) return location.reload(); // Its proxy signs the reader in again.
  const isWrong = key() !== null;
  forgetKey();
  lock(isWrong || /certificate/.test(error.message) ? sentence(error.message) : "");
}

byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("key").value.trim();
  byId("key").value = "";
  if (!/^[\x21-\x7e]+$/.test(text)) return lock("This is no key: a key is one word of letters, digits, - and _.");
  setKey(text);
  setText(byId("key-error"), "");
  look();
});

byId("leave").addEventListener("click", () => {
  forgetKey();
  lock("");
});

// ---- moving about

const narrow = matchMedia("(max-width: 1099px)");
narrow.addEventListener("change", showDetail);

/** Goes to what the address says. */
function go() {
  const before = place;
  place = read(location.hash);
  if (byId("search").value !== place.search) byId("search").value = place.search;
  if (!place.open || !before.open || !isOf(place.open)(before.open)) [open, past] = [undefined, null];
  if (place.page !== before.page || place.search !== before.search) byId("scroll").scrollTop = 0;
  if (document.body.dataset.locked !== undefined) return;
  show();
  if (place.open && !before.open) byId("detail").focus({ preventScroll: true });
  if (!place.open && before.open) rowElement(before.open)?.focus();
  look();
}

function rowElement(wanted) {
  const row = shown?.rows.find(isOf(wanted));
  return row ? [...byId("rows").children].find(({ dataset }) => dataset.key === keyOf(row))?.querySelector(".open") : undefined;
}

function goTo(to) {
  location.hash = write(to);
}

addEventListener("hashchange", go);
listenToRevocations(lookSoon);

let typing = 0;
byId("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    // Typing is one step back, not one for each letter.
    history.replaceState(null, "", write({ ...place, open: null, search: byId("search").value, page: 1 }));
    go();
  }, SEARCH_AFTER_MS);
});
byId("search-form").addEventListener("submit", (event) => event.preventDefault());

byId("rows").addEventListener("click", (event) => {
  const link = event.target.closest("tr")?.querySelector("a.open");
  if (link && !event.target.closest("a") && getSelection().isCollapsed) link.click();
});

byId("skip").addEventListener("click", () => byId("main").focus());

listen({
  close() {
    if (!place.open) return false;
    goTo({ ...place, open: null });
    return true;
  },
  turn(by) {
    byId(by > 0 ? "next" : "previous").click();
  },
  view(n) {
    goTo({ ...place, view: Object.keys(VIEWS)[n], page: 1, open: null });
  },
});

let hidden = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) {
    hidden = setTimeout(() => stream.stop(), HIDDEN_MS);
  } else if (document.body.dataset.locked === undefined) {
    if (!stream.isStarted && overview) stream.start();
    look();
  }
});

setInterval(() => {
  if (document.hidden) return;
  tick(document, now());
  showGateway(overview, isGatewayAway);
}, 1000);

setText(byId("gateway"), location.host);
byId("search").value = place.search;
show();
look();

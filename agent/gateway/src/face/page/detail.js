// One resource: who holds it, who waits for it in which order, what happened to it, and what to type next.

import { byId, make, nameOf, setAttribute } from "./dom.js";
import { changeKey, itemOf, newestFirst } from "./feed.js";
import { count, counted, quoted, span, time, visible } from "./format.js";
import { revokeButton } from "./revoke.js";
import { holderName, setSince, stateOf, usageOf } from "./tables.js";

const KIND = { master: "Project", leader: "Leader", lease: "Lease", semaphore: "Semaphore" };
/** Changes of the resource that are shown. */
const CHANGES_MAX = 20;

function since(at) {
  const element = make("span", { class: "number" });
  setSince(element, at);
  return element;
}

/** For how long it has been held; of one that has ended when, and until when it is kept. */
function held(holder) {
  if (!holder.keptUntil) return since(holder.since);
  const ended = holder.ended ? `ended ${time(holder.ended)}, ` : "ended, ";
  return make("span", { class: "number" }, `${ended}kept until ${time(holder.keptUntil)}`);
}

function whoOf(holder) {
  return make("span", { class: "who" }, nameOf(visible(holderName(holder))), holder.host ? make("span", { class: "quiet" }, "@", make("bdi", {}, visible(holder.host))) : null);
}

function fact(title, ...content) {
  return make("div", {}, make("dt", {}, title), make("dd", {}, ...content));
}

/** The process of a holder, as its agent told the history when it was granted this. */
function processOf({ pid, user, uid, command: line }) {
  const facts = [];
  if (pid) facts.push(`pid ${pid}`);
  if (user || typeof uid === "number") facts.push(`user ${user ? visible(user) : uid}`);
  return [
    facts.length > 0 ? make("span", { class: "quiet ids process" }, facts.join(" · ")) : null,
    line ? make("code", { class: "line-of-command" }, visible(line)) : null,
  ];
}

function holders(row, past, { isStoreUp, mayRevoke }) {
  const items = row.holders.map((holder) => {
    const grant = past?.find(({ change, token }) => change === "granted" && token === holder.token);
    const who = holder.host ? `${holderName(holder)}@${holder.host}` : holderName(holder);
    const token = holder.token === null || holder.token === undefined ? null : make("span", {}, `token ${holder.token}`);
    const times = make("span", { class: "quiet ids" });
    if (holder.lastBeat) times.append("last beat ", make("span", { "data-beat": "" }), " ago");
    if (row.runsOut && row.holders.length === 1) times.append(holder.lastBeat ? " · " : "", "time is up in ", make("span", { "data-until": "" }));
    return make(
      "li",
      {},
      make("span", { class: "line" }, whoOf(holder), held(holder)),
      make("span", { class: "quiet ids" }, token, " ", make("span", {}, `session ${visible(holder.session ?? "")}`)),
      times.hasChildNodes() ? times : null,
      ...(grant ? processOf(grant) : []),
      mayRevoke ? revokeButton(row, holder, visible(who)) : null,
    );
  });
  const rest = row.holding - row.holders.length;
  if (rest > 0) items.push(make("li", { class: "quiet" }, `and ${count(rest)} more`));
  const title = row.kind === "master" ? "Master" : row.kind === "leader" ? "Leader" : "Held by";
  const none = isStoreUp ? "Nobody." : "Nobody, when the store last answered.";
  return [make("h3", {}, title), items.length > 0 ? make("ul", { class: "people" }, ...items) : make("p", { class: "quiet" }, none)];
}

/** Brings the times up to date that each beat changes, and leaves the panel as it is. */
function fillBeats(panel, row) {
  const beats = row?.holders?.filter(({ lastBeat }) => lastBeat) ?? [];
  panel.querySelectorAll("[data-beat]").forEach((element, at) => setSince(element, beats[at]?.lastBeat));
  panel.querySelectorAll("[data-until]").forEach((element) => setAttribute(element, "data-until", String(row?.runsOut ?? "")));
}

function waiters(row) {
  if (row.waiting === 0) return [make("h3", {}, "Waiting"), make("p", { class: "quiet" }, "Nobody.")];
  const items = row.waiters.map((waiter, index) =>
    make("li", {}, make("span", { class: "line" }, make("span", { class: "rank" }, String(index + 1)), whoOf(waiter), since(waiter.since))),
  );
  const rest = row.waiting - row.waiters.length;
  if (rest > 0) items.push(make("li", { class: "quiet" }, `and ${count(rest)} more behind them`));
  return [make("h3", {}, "Waiting, next first"), make("ol", { class: "people" }, ...items)];
}

function route({ route }) {
  if (!route) return [];
  const facts = [["Address", route.address], ["Proxy", route.proxy_id], ["Partition", String(route.partition)], ["Status", route.status]];
  return facts.filter(([, text]) => text).map(([title, text]) => fact(title, make("bdi", { class: "mono" }, visible(text))));
}

function command(text, copies) {
  const line = make("div", { class: "command" }, make("code", { tabindex: "0" }, text));
  if (copies) {
    const button = make("button", { type: "button", class: "plain" }, "Copy");
    button.setAttribute("aria-label", `Copy ${text}`);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select it";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    line.append(button);
  }
  return line;
}

function commands({ kind, name, tenant, holders: [holder] }) {
  const word = quoted(name);
  if (word === null) return [];
  const tenantWord = tenant === "default" ? "" : ` --tenant ${quoted(tenant) ?? "…"}`;
  const lines = ["why", "history", "observe"].map((command) => `tenure ${command} ${kind} ${word}${tenantWord}`);
  if (holder) lines.push(`sudo tenure revoke ${kind} ${word}${tenantWord}`);
  // Only where the browser takes the page for a safe one is there a clipboard.
  const copies = Boolean(navigator.clipboard);
  return [make("h3", {}, "On any host"), ...lines.map((text) => command(text, copies))];
}

function head(open, state) {
  const close = make("a", { id: "close", class: "plain", href: "#", "aria-label": "Close", title: "Close (Esc)" }, "Close");
  const title = make("h2", { id: "detail-title" }, make("span", { class: "kind" }, KIND[open.kind]), " ", make("bdi", {}, visible(open.name)));
  return make("div", { class: "bar" }, title, state ? make("span", { class: "state", "data-state": state }, state) : null, close);
}

/** The content of a panel, without the times that each beat changes; an equal panel is left alone. */
function signature(parts) {
  return JSON.stringify(parts, (name, value) => (name === "lastBeat" || name === "runsOut" ? Boolean(value) : value));
}

/** The past of a resource from the store, with further changes that this page was told of, newest first. */
function history(past, changes) {
  if (past === null) {
    const told = changes.slice(0, CHANGES_MAX);
    return ["What this gateway saw", told, "The whole history takes the right “history”, which this key does not have."];
  }
  const known = new Set(past.map(changeKey));
  const all = newestFirst([...past, ...changes.filter((change) => !known.has(changeKey(change)))]);
  return ["History", all.slice(0, CHANGES_MAX), all.length > CHANGES_MAX ? `and ${count(all.length - CHANGES_MAX)} before that` : null];
}

/**
 * Fills the panel: with a row, with null where the key does not show it, with undefined while that is not known.
 * `past` is the store's history of it, null for a key without the right; `changes` are those that this page was told of.
 */
export function fillDetail(open, row, { past, changes }, { isStoreUp, mayRevoke, closing }) {
  const panel = byId("detail");
  const [pastTitle, told, pastNote] = history(past, changes);
  const shown = signature([open, row === undefined ? "reading" : row, told, pastNote, isStoreUp, mayRevoke, closing]);
  if (panel.dataset.shown === shown) return fillBeats(panel, row);
  panel.dataset.shown = shown;
  // A new panel has the scroll, the focus and the selection of the one before.
  const focus = focusedIn(panel);
  const top = panel.querySelector(".scroll")?.scrollTop ?? 0;
  const body = make("div", { class: "scroll" });
  if (row === undefined) {
    body.append(make("p", { class: "quiet" }, "Reading…"));
  } else if (row === null) {
    body.append(make("p", {}, "This key does not show it: somebody may hold it."));
  } else if (isEmpty(row)) {
    const none = "Nobody holds it and nobody waits for it";
    body.append(make("p", {}, isStoreUp ? `${none}.` : `${none}, when the store last answered.`), ...nextStep(open));
  } else {
    const facts = [];
    if (row.error) body.append(make("p", { class: "error" }, `The store did not tell of it: ${visible(row.error)}`));
    if (row.tenant !== "default") facts.push(fact("Tenant", make("bdi", {}, visible(row.tenant))));
    if (row.kind === "semaphore") facts.push(fact("In use", usageOf(row)));
    if (row.ttl_ms) facts.push(fact("Ttl", row.grace_ms ? `${span(row.ttl_ms)}, and ${span(row.grace_ms)} of grace` : span(row.ttl_ms)));
    facts.push(...route(row));
    if (facts.length > 0) body.append(make("dl", { class: "facts" }, ...facts));
    body.append(...holders(row, past, { isStoreUp, mayRevoke }), ...waiters(row));
    if (row.kind === "master") {
      const rest = row.members - row.sessions.length;
      const names = row.sessions.map((name) => make("li", {}, nameOf(visible(name))));
      body.append(make("h3", {}, counted(row.members, "session")));
      if (names.length > 0) body.append(make("ul", { class: "names" }, ...names, rest > 0 ? make("li", { class: "quiet" }, `and ${count(rest)} more`) : null));
    }
  }
  if (row !== undefined && (told.length > 0 || pastNote)) {
    body.append(make("h3", {}, pastTitle));
    if (told.length > 0) body.append(make("ol", { class: "changes" }, ...told.map((change) => itemOf(change, true))));
    if (pastNote) body.append(make("p", { class: "quiet" }, pastNote));
  }
  if (row && !isEmpty(row)) body.append(...commands(row));
  panel.replaceChildren(head(open, row ? stateOf(row, isStoreUp) : null), body);
  byId("close").href = closing;
  fillBeats(panel, row);
  body.scrollTop = top;
  focus?.();
}

function isEmpty({ error, holding, waiting, members }) {
  return !error && holding === 0 && waiting === 0 && members === 0;
}

function nextStep({ kind, name }) {
  const word = quoted(name);
  const flag = { leader: "--leader", lease: "--lease", semaphore: "--semaphore", master: "--master --project" }[kind];
  return word === null ? [] : [make("h3", {}, "Take it"), command(`tenure run ${flag} ${word} -- COMMAND`, false)];
}

/** Gives the focus back to what is in the same place of a panel that was filled anew. */
function focusedIn(panel) {
  const reachable = () => [...panel.querySelectorAll("a, button, [tabindex]")];
  const index = reachable().indexOf(document.activeElement);
  return index < 0 ? null : () => reachable()[index]?.focus({ preventScroll: true });
}

// The columns of each view, and how a row is filled.

import { make, setAttribute, setText } from "./dom.js";
import { count, shortSpan, span, time, visible } from "./format.js";
import { routingColumns } from "./routing.js";

/** An agent that has claims and has not beaten for so long is late: permits, which are beaten least, are each 60 s. */
const LATE_MS = 75_000;
/** Holders and sessions that a row names. */
const NAMED_MAX = 3;

const KIND = { master: "project", leader: "leader", lease: "lease", semaphore: "semaphore" };

/** Words for a view: its title, one of its rows, many of them. */
export const WORDS = {
  all: ["All", "resource", "resources"],
  projects: ["Projects", "project", "projects"],
  leaders: ["Leaders", "leader", "leaders"],
  leases: ["Leases", "lease", "leases"],
  semaphores: ["Semaphores", "semaphore", "semaphores"],
  agents: ["Agents", "agent", "agents"],
  changes: ["Changes", "change", "changes"],
  mailboxes: ["Mailboxes", "mailbox", "mailboxes"],
  runners: ["Runners", "runner", "runners"],
  proxies: ["Proxies", "proxy", "proxies"],
};

/** What is said where a view has nothing: what that means, what to do, and how. */
export const NEXT_STEP = {
  all: ["Nothing is held and nobody waits.", "Hold something for a minute, on any host with an agent:", "tenure run --leader hello -- sleep 60"],
  projects: ["No project has a session.", "Become the master of one:", "tenure run --master --project my-project -- sleep 60"],
  leaders: ["Nobody leads.", "Let one host of many run a job:", "tenure run --leader nightly -- ./backup.sh"],
  leases: ["There is no lease.", "Hold one that has an address, so that others find it:", "tenure run --lease web-7 --address 10.0.0.7:8982 -- ./server"],
  semaphores: ["No permit is taken.", "Let four run at a time, in all of the fleet:", "tenure run --semaphore encode --limit 4 -- ./encode.sh"],
  mailboxes: ["No runner has a mailbox.", "Let one host of many have it, or a runner by gRPC:", "tenure run --lease mail@proxy-01 --address 10.0.0.7:8982 -- ./server"],
  runners: ["No runner has a mailbox.", "Runners call AcquireLease over gRPC; or hold a lease on any host:", "tenure run --lease mail@proxy-01 --address 10.0.0.7:8982 -- ./server"],
  proxies: ["No proxy is told of routes.", "A proxy registers over gRPC, or stands in the gateway's configuration:", '[[proxies]]\nid = "proxy-01"\naddress = "proxy-01.internal:8981"'],
  agents: ["There is no agent.", "Connect one, with a key where the gateway asks for it:", `tenured --upstream ${location.origin} --upstream-secret-file KEY_FILE`],
};

/** What a resource is in: "held", "kept" from others after its holders have ended, "jeopardy" while the store cannot renew it, "waiting", "free" or "unknown". */
export function stateOf(row, isStoreUp) {
  if (row.error) return "unknown";
  if (row.holding > 0 && !isStoreUp) return "jeopardy";
  if (row.holding > 0) return keptUntil(row) ? "kept" : "held";
  return row.waiting > 0 ? "waiting" : "free";
}

/** Until when it is kept from others, if no holder that is listed runs any more. */
function keptUntil({ holders }) {
  const all = holders.map((holder) => holder.keptUntil ?? Infinity);
  const last = all.length > 0 ? Math.max(...all) : Infinity;
  return last === Infinity ? null : last;
}

export function keyOf(row) {
  if (row.key) return row.key;
  return row.kind ? `${row.tenant}\n${row.kind}\n${row.name}` : `${row.host}\n${row.principal}\n${row.address}`;
}

/** The state of an agent: it is late if it has something to beat for and does not. Beats of one that uses another gateway are not seen here. */
export function stateOfAgent(agent, now) {
  if (!agent.seen) return "jeopardy";
  if (agent.lastBeat === null && agent.claims > 0) return agent.last_seen_ms === null ? "waiting" : "held";
  if (agent.lastBeat === null) return "free";
  return agent.claims > 0 && now - agent.lastBeat > LATE_MS ? "jeopardy" : "held";
}

const AGENT_WORD = { held: "beating", free: "connected", waiting: "no beat yet", jeopardy: "late" };

/** "name on host". */
export function holderName(holder) {
  return holder.name || (holder.session ?? "").slice(0, 8) || "unnamed";
}

function who(cell, holders, more) {
  const [first] = holders;
  if (!first) {
    setText(cell, "");
    setAttribute(cell, "title", null);
    return;
  }
  const names = holders.slice(0, NAMED_MAX).map((holder) => (holder.host ? `${holderName(holder)}@${holder.host}` : holderName(holder)));
  const rest = more - names.length;
  const text = visible(names.join(", ")) + (rest > 0 ? ` and ${count(rest)} more` : "");
  if (cell.dataset.text === text) return;
  cell.dataset.text = text;
  cell.title = text;
  cell.replaceChildren();
  names.forEach((name, index) => {
    const at = holders[index].host ? name.lastIndexOf("@") : name.length;
    const host = name.slice(at);
    cell.append(index > 0 ? ", " : "", make("bdi", {}, visible(name.slice(0, at)), make("span", { class: "quiet" }, visible(host))));
  });
  if (rest > 0) cell.append(make("span", { class: "quiet" }, ` and ${count(rest)} more`));
}

/** Shows the time since an instant; the page's tick keeps it true. */
export function setSince(element, at) {
  setAttribute(element, "data-since", at ? String(at) : null);
  if (!at) setText(element, "");
}

/** Brings all shown times up to now. */
export function tick(root, now) {
  for (const element of root.querySelectorAll("[data-since]")) {
    setText(element, span(now - Number(element.dataset.since)));
  }
  for (const element of root.querySelectorAll("[data-until]")) {
    setText(element, span(Number(element.dataset.until) - now));
  }
}

/** "2 of 2": the permits of a semaphore that are taken. */
export function usageOf({ limit, holding }) {
  return limit === null ? count(holding) : `${count(holding)} of ${count(limit)}`;
}

function routeParts(route) {
  if (!route) return [];
  return [route.proxy_id && `via ${route.proxy_id}`, route.partition > 0 && `partition ${route.partition}`, route.status].filter((part) => part);
}

function oldest(row) {
  const of = row.holders.length > 0 ? row.holders : row.waiters;
  return of.reduce((least, { since: at }) => (at && (!least || at < least) ? at : least), 0);
}

const columns = {
  name: (title) => ({
    title,
    class: "name",
    fill(cell, row, { link }) {
      if (!cell.firstChild) cell.append(make("a", { class: "open" }, make("bdi")), make("span", { class: "tenant" }));
      const [anchor, tenant] = cell.children;
      setAttribute(anchor, "href", link(row));
      setAttribute(anchor, "title", row.name);
      setText(anchor.firstChild, visible(row.name));
      setText(tenant, row.tenant === "default" ? "" : visible(row.tenant));
    },
  }),
  kind: {
    title: "Kind",
    class: "kind",
    fill: (cell, row) => setText(cell, row.kind === "semaphore" && !row.error ? `${KIND.semaphore} ${usageOf(row)}` : (KIND[row.kind] ?? row.kind)),
  },
  state: {
    title: "State",
    class: "status",
    fill(cell, row, { isStoreUp }) {
      if (!cell.firstChild) cell.append(make("span", { class: "state" }));
      const state = stateOf(row, isStoreUp);
      setAttribute(cell.firstChild, "data-state", state);
      setText(cell.firstChild, state);
      setAttribute(cell, "title", row.error ? visible(row.error) : null);
    },
  },
  holder: (title) => ({ title, class: "holder", fill: (cell, row) => who(cell, row.holders, row.holding) }),
  since: {
    title: "For",
    class: "number since",
    fill(cell, row) {
      const until = keptUntil(row);
      setSince(cell, until ? null : oldest(row));
      if (until) setText(cell, `until ${time(until)}`);
    },
  },
  waiting: {
    title: "Waiting",
    class: "number waiting",
    fill(cell, row) {
      setText(cell, row.waiting > 0 ? count(row.waiting) : "0");
      setAttribute(cell, "data-none", row.waiting > 0 ? null : "");
    },
  },
  members: {
    title: "Sessions",
    class: "number members",
    fill(cell, row) {
      setText(cell, count(row.members));
      setAttribute(cell, "title", visible(row.sessions.join(", ")));
      setAttribute(cell, "data-none", row.members > 0 ? null : "");
    },
  },
  token: {
    title: "Token",
    class: "number token",
    fill: (cell, row) => setText(cell, row.holders.length === 1 ? String(row.holders[0].token ?? "") : ""),
  },
  route: {
    title: "Route",
    class: "route",
    fill(cell, row) {
      if (!cell.firstChild) cell.append(make("bdi"), make("span", { class: "quiet" }));
      const address = row.route?.address ?? "";
      setText(cell.firstChild, visible(address));
      const parts = routeParts(row.route);
      setText(cell.lastChild, parts.length > 0 ? ` ${visible(parts.join(" · "))}` : "");
      setAttribute(cell, "title", address ? visible([address, ...parts].join(" · ")) : null);
    },
  },
  use: {
    title: "In use",
    class: "use",
    fill(cell, row) {
      if (!cell.firstChild) cell.append(make("span", { class: "number" }), make("span", { class: "gauge", "aria-hidden": "true" }, make("span")));
      const [text, gauge] = cell.children;
      setText(text, usageOf(row));
      const share = row.limit > 0 ? Math.min(1, row.holding / row.limit) : 0;
      gauge.style.setProperty("--share", String(share));
      setAttribute(gauge, "data-full", share >= 1 ? "" : null);
    },
  },
};

const agentColumns = [
  {
    title: "Host",
    class: "name",
    fill(cell, agent) {
      if (!cell.firstChild) cell.append(make("span", { class: "open", tabindex: "0" }, make("bdi")));
      setText(cell.firstChild.firstChild, visible(agent.host || "unknown"));
      setAttribute(cell.firstChild, "title", agent.host);
    },
  },
  {
    title: "State",
    class: "status",
    fill(cell, agent, { now }) {
      if (!cell.firstChild) cell.append(make("span", { class: "state" }));
      const state = stateOfAgent(agent, now);
      setAttribute(cell.firstChild, "data-state", state);
      setText(cell.firstChild, AGENT_WORD[state]);
    },
  },
  { title: "Version", class: "version", fill: (cell, agent) => setText(cell, agent.version ?? "") },
  { title: "Principal", class: "holder", fill: (cell, agent) => (setText(cell, visible(agent.principal ?? "")), setAttribute(cell, "title", agent.principal)) },
  { title: "Address", class: "route", fill: (cell, agent) => setText(cell, agent.address ?? "") },
  { title: "Claims", class: "number claims", fill: (cell, agent) => (setText(cell, count(agent.claims ?? 0)), setAttribute(cell, "data-none", agent.claims > 0 ? null : "")) },
  { title: "Last beat", class: "number beat", fill: (cell, agent) => setSince(cell, agent.lastBeat) },
  {
    title: "Beats late, p99",
    class: "number late",
    fill: (cell, agent) => setText(cell, agent.beat_late_p99_ms === null || agent.beat_late_p99_ms === undefined ? "–" : shortSpan(agent.beat_late_p99_ms)),
  },
  { title: "Connected", class: "number since", fill: (cell, agent) => setSince(cell, agent.connected) },
];

const { name, kind, state, holder, since, waiting, members, token, route, use } = columns;
const COLUMNS = {
  all: [name("Name"), kind, state, holder("Held by"), since, waiting],
  projects: [name("Project"), state, holder("Master"), since, members, waiting],
  leaders: [name("Role"), state, holder("Leader"), since, token, waiting],
  leases: [name("Lease"), state, holder("Held by"), since, route, waiting],
  semaphores: [name("Semaphore"), state, use, holder("Held by"), since, waiting],
  agents: agentColumns,
  changes: [],
  ...routingColumns(name),
};

/** Makes the head of a view's table. */
export function fillHead(head, view) {
  head.replaceChildren(...COLUMNS[view].map((column) => make("th", { role: "columnheader", scope: "col", class: column.class }, column.title)));
}

export function newRow(view) {
  const cells = COLUMNS[view].map((column, index) =>
    index === 0
      ? make("th", { role: "rowheader", scope: "row", class: column.class })
      : make("td", { role: "cell", class: column.class, "data-title": column.title }),
  );
  return make("tr", { role: "row" }, ...cells);
}

export function fillRow(element, view, row, context) {
  COLUMNS[view].forEach((column, index) => column.fill(element.children[index], row, context));
}

// What the gateway tells of resources and agents, dated: it tells how long ago something was, the page shows it growing.

import { Refused, ask, now } from "./api.js";
import { changeKey } from "./feed.js";
import { VIEWS } from "./place.js";

/** Rows of a page. */
export const ROWS = 50;
/** Two answers that differ by less tell of the same instant: each was on its way for another while. */
const SAME_MS = 2_000;
/** More instants than this are of what nobody looks at any more. */
const INSTANTS_MAX = 20_000;

const instants = new Map();

/** The instant that was so long ago: the one of the answer before, where they tell of the same. */
function instant(key, ago) {
  if (ago === null || ago === undefined) return null;
  const at = now() - ago;
  const before = instants.get(key);
  if (before !== undefined && Math.abs(before - at) < SAME_MS) return before;
  if (instants.size >= INSTANTS_MAX) instants.clear();
  instants.set(key, at);
  return at;
}

function dated(row) {
  const of = `${row.tenant}\n${row.kind}\n${row.name}`;
  const owner = (owner) => {
    const { since_ms: sinceMs, last_beat_ms: lastBeatMs, ended_ms: endedMs, kept_ms: keptMs, ...rest } = owner;
    const key = `${of}\n${owner.session}\n${owner.token ?? "waits"}`;
    const kept = keptMs ? { ended: instant(`${key}\nended`, endedMs), keptUntil: instant(`${key}\nkept`, -keptMs) } : {};
    return { ...rest, ...kept, since: instant(key, sinceMs), lastBeat: instant(`${key}\nbeat`, lastBeatMs) };
  };
  const { runs_out_ms: runsOutMs, ...rest } = row;
  return { ...rest, runsOut: typeof runsOutMs === "number" ? now() + runsOutMs : null, holders: row.holders.map(owner), waiters: row.waiters.map(owner) };
}

async function page(query, signal) {
  const { total, rows } = await ask(`/v1/resources?${new URLSearchParams(query)}`, signal);
  return { total, rows: rows.map(dated) };
}

/** All agents, in the order of their hosts; a Refused where the gateway does not tell of them, and yet of the rest. */
export async function readAgents(signal) {
  const answer = await ask("/v1/agents", signal).catch((error) => {
    if (error instanceof Refused && error.status !== 401) return error;
    throw error;
  });
  if (answer instanceof Refused) return answer;
  const { agents } = answer;
  const all = agents.map((agent) => {
    const of = `${agent.agent}\n${agent.host}\n${agent.principal}\n${agent.address}`;
    return { ...agent, lastBeat: instant(`${of}\nbeat`, agent.last_beat_ms), connected: instant(of, agent.connected_ms) };
  });
  return all.sort((a, b) => (a.host ?? "").localeCompare(b.host ?? ""));
}

/** Views of the control plane, with what a row of each is named by. */
const ROUTING = { mailboxes: "mailbox_id", runners: "runner_id", proxies: "proxy_id" };

async function routingPage(view, query, signal) {
  const { total, rows } = await ask(`/v1/${view}?${new URLSearchParams(query)}`, signal);
  const shown = rows.map((row) => {
    const key = `${view}\n${row.tenant}\n${row[ROUTING[view]]}`;
    // A mailbox is a lease, which a click opens.
    const lease = view === "mailboxes" ? { kind: "lease", name: row.mailbox_id } : {};
    return { ...row, ...lease, key, lastHeartbeat: instant(key, row.last_heartbeat_ms) };
  });
  return { total, rows: shown };
}

/** The rows of a place, and how many there are on all its pages. */
export async function readRows({ view, search, page: number }, agents, signal) {
  const from = (number - 1) * ROWS;
  if (view === "changes") return { total: 0, rows: [] };
  if (view === "agents") {
    if (agents instanceof Refused) throw agents;
    const part = search.toLowerCase();
    const found = agents.filter(({ host, principal }) => `${host} ${principal}`.toLowerCase().includes(part));
    return { total: found.length, rows: found.slice(from, from + ROWS) };
  }
  const query = { search, offset: String(from), limit: String(ROWS) };
  if (ROUTING[view]) return routingPage(view, query, signal);
  return page(VIEWS[view] ? { ...query, kind: VIEWS[view] } : query, signal);
}

/** Whether a row is the one that a link names. */
export const isOf = (wanted) => (row) => row.kind === wanted.kind && row.name === wanted.name && row.tenant === wanted.tenant;

/** The row of a link: one of these, or one that is asked for; null where the key does not show it. */
export async function readRow(wanted, rows, signal) {
  const { tenant, kind, name } = wanted;
  return rows.find((row) => row.holders && isOf(wanted)(row)) ?? (await page({ tenant, kind, name }, signal)).rows[0] ?? null;
}

/** The store's history of a resource, newest first; null for a key without the right. */
export async function readPast({ tenant, kind, name }, signal) {
  try {
    const { changes } = await ask(`/v1/history?${new URLSearchParams({ tenant, kind, name })}`, signal);
    return changes.map((change) => ({ ...change, at: instant(changeKey({ ...change, at: "" }), now() - change.at) }));
  } catch (error) {
    if (error instanceof Refused && error.status === 403) return null;
    throw error;
  }
}

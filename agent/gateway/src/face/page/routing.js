// The columns of mailboxes, their runners, and the proxies that are told of them.

import { make, setAttribute, setText } from "./dom.js";
import { count, span, visible } from "./format.js";

const text = (title, className, of) => ({
  title,
  class: className,
  fill(cell, row) {
    if (!cell.firstChild) cell.append(make("bdi"));
    const shown = visible(of(row) ?? "");
    setText(cell.firstChild, shown);
    setAttribute(cell, "title", shown || null);
  },
});

const number = (title, className, of) => ({
  title,
  class: `number ${className}`,
  fill(cell, row) {
    const n = of(row);
    setText(cell, typeof n === "number" ? count(n) : (n ?? ""));
    setAttribute(cell, "data-none", n ? null : "");
  },
});

/** A row that opens nothing, and takes the focus all the same. */
const plain = (title, of) => ({
  title,
  class: "name",
  fill(cell, row) {
    if (!cell.firstChild) cell.append(make("span", { class: "open", tabindex: "0" }, make("bdi")), make("span", { class: "tenant" }));
    setText(cell.firstChild.firstChild, visible(of(row)));
    setAttribute(cell.firstChild, "title", of(row));
    setText(cell.lastChild, row.tenant === "default" ? "" : visible(row.tenant));
  },
});

const state = (of) => ({
  title: "State",
  class: "status",
  fill(cell, row) {
    if (!cell.firstChild) cell.append(make("span", { class: "state" }));
    const [kind, word] = of(row);
    setAttribute(cell.firstChild, "data-state", kind);
    setText(cell.firstChild, visible(word));
  },
});

const TONE = { active: "held", expiring: "jeopardy" };

function stateOfProxy({ connected, behind, lacks }) {
  if (!connected && lacks === 0) return ["free", "nothing to tell"];
  if (!connected) return ["down", "not reached"];
  return behind ? ["jeopardy", "behind"] : ["held", "up to date"];
}

const validFor = ({ valid_for_ms: ms }) => (ms === null ? "" : ms > 0 ? span(ms) : "over");

const ago = ({ lastHeartbeat }, now) => (lastHeartbeat ? span(now - lastHeartbeat) : "elsewhere");

/** The columns of these views; `name` makes the one that opens a row. */
export const routingColumns = (name) => ({
  mailboxes: [
    name("Mailbox"),
    state(({ status }) => [TONE[status] ?? "waiting", status]),
    text("Runner", "holder", (row) => row.runner_id),
    text("Proxy", "proxy", (row) => row.proxy_id),
    number("Partition", "partition", (row) => String(row.partition)),
    text("Address", "route", (row) => row.address),
    number("Token", "token", (row) => String(row.token)),
    number("Valid for", "valid", validFor),
  ],
  runners: [
    plain("Runner", (row) => row.runner_id),
    state((row) => (row.troubled > 0 ? ["jeopardy", `${count(row.troubled)} in trouble`] : ["held", "active"])),
    number("Mailboxes", "members", (row) => row.mailboxes),
    {
      title: "Last heartbeat",
      class: "number beat",
      fill(cell, row, { now }) {
        setAttribute(cell, "data-since", row.lastHeartbeat ? String(row.lastHeartbeat) : null);
        setText(cell, ago(row, now));
      },
    },
  ],
  proxies: [
    plain("Proxy", (row) => row.proxy_id),
    state(stateOfProxy),
    text("Address", "route", (row) => row.address),
    number("Lacks", "lacks", (row) => row.lacks),
    text("Partitions", "holder", ({ partitions }) => partitions?.join("–")),
  ],
});

// The top and the foot of the page: the gateway, its store, and the principal that looks.

import { now } from "./api.js";
import { byId, setAttribute, setText } from "./dom.js";
import { span, time, visible } from "./format.js";

/** The principal of all where no key is asked for. */
const ANYBODY = "local";

export function state(element, kind, text, title) {
  setAttribute(element, "data-state", kind);
  setText(element, text);
  setAttribute(element, "title", title);
}

/** What the nodes of a cluster do, as this gateway knows it. Who leads knows who is away. */
function nodesText({ voters, leads, silent }) {
  if (!leads) return `${voters} nodes`;
  return `${voters} nodes, this one leads${silent > 0 ? `, ${silent} away` : ""}`;
}

export function showGateway(overview, isGatewayAway) {
  setText(byId("gateway"), location.host);
  if (!overview) return;
  const { version, mode, started_at: startedAt, store } = overview.gateway;
  setText(byId("release"), `${mode} · ${version} · up ${span(now() - startedAt)}`);
  const principal = overview.caller?.principal ?? ANYBODY;
  setText(byId("who"), principal === ANYBODY ? "" : visible(principal));
  const isUp = store.state === "up";
  if (isGatewayAway) state(byId("store"), "unknown", `${store.kind} not known`, null);
  else state(byId("store"), isUp ? "held" : "down", `${store.kind} ${store.state}`, store.error);
  setText(byId("guarantee"), store.nodes ? `${store.guarantee} · ${nodesText(store.nodes)}` : store.guarantee);
  setText(byId("as-of"), overview.read_at > 0 ? `as of ${time(overview.read_at)}` : "");
}

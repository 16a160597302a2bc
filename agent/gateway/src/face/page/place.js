// What is looked at: the part of the address behind #, so that a link shows somebody else the same.

/** Views with the kind of their resources; null where they are of no kind. */
export const VIEWS = {
  all: "",
  projects: "master",
  leaders: "leader",
  leases: "lease",
  semaphores: "semaphore",
  agents: null,
  changes: null,
  mailboxes: null,
  runners: null,
  proxies: null,
};

const viewOfKind = Object.fromEntries(Object.entries(VIEWS).filter(([, kind]) => kind).map(([view, kind]) => [kind, view]));

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Reads #VIEW?search=TEXT&page=N or #KIND/NAME?tenant=TENANT, the latter with what was looked at
 * before: view, search and page.
 */
export function read(hash) {
  const [path, ...rest] = hash.replace(/^#/, "").split("?");
  const query = new URLSearchParams(rest.join("?"));
  const page = Math.max(1, Math.floor(Number(query.get("page"))) || 1);
  const search = query.get("search") ?? "";
  const slash = path.indexOf("/");
  const kind = path.slice(0, slash);
  if (slash > 0 && Object.hasOwn(viewOfKind, kind)) {
    const asked = query.get("view");
    const view = asked !== null && Object.hasOwn(VIEWS, asked) && !["agents", "runners", "proxies"].includes(asked) ? asked : viewOfKind[kind];
    return { view, search, page, open: { kind, name: decoded(path.slice(slash + 1)), tenant: query.get("tenant") || "default" } };
  }
  return { view: Object.hasOwn(VIEWS, path) ? path : "all", search, page, open: null };
}

/** The fragment that read makes that place of. */
export function write({ view, search, page, open }) {
  const query = new URLSearchParams();
  if (open && view !== viewOfKind[open.kind]) query.set("view", view);
  if (open && open.tenant !== "default") query.set("tenant", open.tenant);
  if (search) query.set("search", search);
  if (page > 1) query.set("page", String(page));
  const text = query.toString();
  const path = open ? `${open.kind}/${encodeURIComponent(open.name)}` : view;
  return `#${path}${text ? `?${text}` : ""}`;
}

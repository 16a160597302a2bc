import { existsSync, lstatSync } from "node:fs";

/** The socket of an agent that runs as a service. */
export const SERVICE_SOCKET = process.platform === "darwin" ? "/var/run/tenured/api.sock" : "/run/tenured/api.sock";

/** The surroundings that the search looks at. */
export interface Surroundings {
  readonly variable: (name: string) => string | undefined;
  readonly usable: (path: string, uid: number) => boolean;
  readonly uid: () => number;
}

/** The agent's socket, and the other places that were looked at, unless it was named. */
export interface Found {
  readonly path: string;
  readonly besides: readonly string[];
}

/** In this order: `explicit`, TENURE_SOCKET, the places where an agent listens by itself. */
export function findSocket(explicit?: string, around: Surroundings = SURROUNDINGS): Found {
  const named = explicit ?? (around.variable("TENURE_SOCKET") || undefined);
  if (named !== undefined) return { path: parseSocket(named), besides: [] };
  const told = around.variable("XDG_RUNTIME_DIR");
  const uid = around.uid();
  const all = places(told, uid);
  const path = all.find((place) => around.usable(place, uid)) ?? (told ? (all[0] as string) : SERVICE_SOCKET);
  return { path, besides: all.filter((place) => place !== path) };
}

/**
 * Paths at which an agent may listen: below the user's runtime directory, also when nothing tells of that, as in a
 * cron job; and as a service. Root's service comes before an agent of root's own session.
 */
export function places(runtimeDirectory: string | undefined, uid: number): string[] {
  const untold = `/run/user/${uid}/tenured/api.sock`;
  const rest = uid === 0 ? [SERVICE_SOCKET, untold] : [untold, `${temporaryDirectory(uid)}/api.sock`, SERVICE_SOCKET];
  const told = runtimeDirectory ? [`${runtimeDirectory.replace(/\/+$/, "")}/tenured/api.sock`] : [];
  return [...new Set([...told, ...rest])];
}

/** Takes off `unix:` and refuses what cannot be a socket's path. */
export function parseSocket(value: string): string {
  const bad = (rule: string): TypeError => new TypeError(`${JSON.stringify(value)} does not name a socket: ${rule}`);
  let path = value;
  if (value.startsWith("unix:")) {
    path = value.slice("unix:".length);
    if (path.startsWith("//")) {
      path = path.slice(2);
      if (!path.startsWith("/")) throw bad("a `unix:` URI has no host: write `unix:///path`");
    }
  } else if (value.includes("://")) {
    throw bad("the only scheme is `unix:`");
  }
  if (path === "") throw bad("the path must not be empty");
  return path;
}

/** Each fact is read only where it matters: a runtime may need a permission for the read. */
const SURROUNDINGS: Surroundings = {
  variable: (name) => process.env[name],
  usable: (path, uid) => existsSync(path) && !isPlanted(path, uid),
  uid: () => process.geteuid?.() ?? 0,
};

/** The directory of a user's own agent when there is no XDG_RUNTIME_DIR. */
function temporaryDirectory(uid: number): string {
  return `/tmp/tenured-${uid}`;
}

/** True if somebody else has taken this user's place under /tmp, where everybody may. */
function isPlanted(path: string, uid: number): boolean {
  const directory = temporaryDirectory(uid);
  if (!path.startsWith(`${directory}/`)) return false;
  try {
    const status = lstatSync(directory);
    return status.uid !== uid || !status.isDirectory();
  } catch {
    return true;
  }
}

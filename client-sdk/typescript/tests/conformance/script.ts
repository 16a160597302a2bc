// The script that every SDK runs: ../../conformance/README.md says what each step means.

import { readFileSync, readdirSync } from "node:fs";

import type { Kind } from "tenure";

export interface Scenario {
  readonly name: string;
  readonly redis?: boolean;
  readonly slow?: boolean;
  readonly agent?: Readonly<Record<string, string>>;
  readonly needs?: readonly string[];
  readonly steps: readonly Step[];
}

export interface Wanted {
  readonly session: string;
  readonly as: string;
  readonly kind: Kind;
  readonly name?: string;
  readonly wait_ms?: number;
  readonly ttl_ms?: number;
  readonly max_hold_ms?: number;
  readonly fleet?: boolean;
  readonly limit?: number;
  readonly priority?: number;
  readonly grace_ms?: number;
  readonly address?: string;
}

export interface Expected {
  readonly expect?: "held" | "busy" | "wait_timeout" | "refused" | "agent_unavailable" | "upstream_unavailable";
  readonly code?: string;
  readonly holder?: string;
}

interface SessionOptions {
  readonly name?: string;
  readonly project?: string;
  readonly progress_ms?: number;
  readonly linger_ms?: number;
  readonly holds?: number;
}

interface Counted {
  readonly session: string;
  readonly kind: Kind;
  readonly name: string;
  readonly count: number;
}

type AgentAction = "restart" | "crash" | "kill" | "stop" | "start" | "freeze" | "thaw";

export type Step = { readonly within_ms?: number } & (
  | { readonly do: "session"; readonly as: string; readonly options?: SessionOptions }
  | ({ readonly do: "acquire" } & Wanted & Expected)
  | ({ readonly do: "begin" } & Wanted)
  | ({ readonly do: "end"; readonly of: string } & Expected)
  | { readonly do: "cancel"; readonly of: string }
  | ({ readonly do: "waiting" | "holding" } & Counted)
  | { readonly do: "release"; readonly hold: string; readonly expect?: "released" | "lost"; readonly reason?: string }
  | { readonly do: "held"; readonly hold: string; readonly is: boolean }
  | { readonly do: "steadily"; readonly hold: string; readonly ms: number }
  | { readonly do: "guard"; readonly hold: string; readonly as: string }
  | { readonly do: "ended"; readonly of: string; readonly reason: string }
  | { readonly do: "token"; readonly hold: string; readonly above: string }
  | { readonly do: "slots"; readonly session: string; readonly count: number }
  | { readonly do: "event"; readonly session: string; readonly event: string; readonly hold?: string; readonly reason?: string; readonly cause?: string }
  | { readonly do: "none"; readonly session: string; readonly event: string }
  | { readonly do: "revoke"; readonly kind: Kind; readonly name: string }
  | { readonly do: "agent"; readonly action: AgentAction }
  | { readonly do: "redis"; readonly action: "freeze" | "thaw" | "kill" | "start" }
  | { readonly do: "block"; readonly ms: number; readonly kind?: Kind; readonly name?: string; readonly held?: string; readonly over?: string }
  | { readonly do: "pause"; readonly ms: number }
  | { readonly do: "beat" | "close"; readonly session: string }
  | { readonly do: "sessions"; readonly count: number; readonly kind: "semaphore"; readonly name: string; readonly limit: number }
);

const WANTED = ["session", "as", "kind", "name", "wait_ms", "ttl_ms", "max_hold_ms", "fleet", "limit", "priority", "grace_ms", "address"];
const EXPECTED = ["expect", "code", "holder"];
const COUNTED = ["session", "kind", "name", "count"];
const FIELDS: Readonly<Record<string, readonly string[]>> = {
  session: ["as", "options"],
  acquire: [...WANTED, ...EXPECTED],
  begin: WANTED,
  end: ["of", ...EXPECTED],
  cancel: ["of"],
  waiting: COUNTED,
  holding: COUNTED,
  release: ["hold", "expect", "reason"],
  held: ["hold", "is"],
  steadily: ["hold", "ms"],
  guard: ["hold", "as"],
  ended: ["of", "reason"],
  token: ["hold", "above"],
  slots: ["session", "count"],
  event: ["session", "event", "hold", "reason", "cause"],
  none: ["session", "event"],
  revoke: ["kind", "name"],
  agent: ["action"],
  redis: ["action"],
  block: ["ms", "kind", "name", "held", "over"],
  pause: ["ms"],
  beat: ["session"],
  close: ["session"],
  sessions: ["count", "kind", "name", "limit"],
};
const OPTIONS = ["name", "project", "progress_ms", "linger_ms", "holds"];
/** There is no fork(2) here. */
const ABILITIES = ["cancel"];

/** Why this runner skips a scenario; undefined if it does not. */
export function skipped({ needs = [] }: Scenario): string | undefined {
  const missing = needs.filter((need) => !ABILITIES.includes(need));
  return missing.length === 0 ? undefined : `there is no ${missing.join(", no ")} in this language`;
}

/** All scenarios; a step or field that this runner does not know is an error. */
export function scenarios(): Scenario[] {
  const directory = new URL("../../../conformance/", import.meta.url);
  const files = readdirSync(directory).filter((name) => name.endsWith(".json")).sort();
  const all = files.flatMap((name) => (JSON.parse(readFileSync(new URL(name, directory), "utf8")) as { scenarios: Scenario[] }).scenarios);
  for (const scenario of all) {
    if (skipped(scenario) !== undefined) continue;
    for (const step of scenario.steps) {
      const known = FIELDS[step.do];
      if (known === undefined) throw new Error(`${scenario.name}: there is no step ${JSON.stringify(step.do)}`);
      const options = step.do === "session" ? Object.keys(step.options ?? {}).filter((key) => !OPTIONS.includes(key)) : [];
      const unknown = Object.keys(step).filter((key) => !["do", "within_ms", ...known].includes(key));
      if (unknown.length + options.length > 0) throw new Error(`${scenario.name}: ${step.do} has no ${[...unknown, ...options].join(", ")}`);
    }
  }
  return all;
}

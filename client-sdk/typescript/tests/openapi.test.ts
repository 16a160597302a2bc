// A generator of npm makes types of the agent's document, and they tell a program what the agent will.
// A field with a default may be left out, which this generator must be told.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const GENERATOR = path("../tests/packages/node_modules/openapi-typescript/bin/cli.js");
const run = promisify(execFile);

const PROGRAM = `
import type { components, operations } from "./api.js";

type Schemas = components["schemas"];
const request: Schemas["Acquire"] = { session: "", kind: "leader", name: "cleanup" };
// @ts-expect-error there is no such kind
const wrong: Schemas["Acquire"] = { session: "", kind: "lock", name: "cleanup" };
const problem: operations["acquire"]["responses"][422]["content"]["application/problem+json"] = {} as Schemas["Problem"];

export function told(event: Schemas["Events"]): string {
  switch (event.event) {
    case "lost":
      return \`\${event.data.reason} by \${event.data.by}\`;
    case "granted":
      // @ts-expect-error a grant has no reason
      return event.data.reason;
    case "snapshot":
      return event.data.holds.map(({ name }) => name).join();
    default:
      return event.event;
  }
}
export default [request, wrong, problem];
`;

test("openapi-typescript makes types of the document", { skip: existsSync(GENERATOR) ? false : `${GENERATOR} is not there` }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "tenure-openapi-"));
  try {
    await run(process.execPath, [GENERATOR, path("../../../agent/daemon/openapi.json"), "--output", join(folder, "api.d.ts"), "--default-non-nullable", "false"]);
    writeFileSync(join(folder, "program.ts"), PROGRAM);
    const options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022"];
    await run(process.execPath, [path("../node_modules/typescript/bin/tsc"), ...options, join(folder, "program.ts")]).catch(
      (error: { stdout: string }) => assert.fail(error.stdout),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});

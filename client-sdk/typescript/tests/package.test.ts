import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { startAgent, type TestAgent } from "tenure/testing";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const README = readFileSync(join(ROOT, "README.md"), "utf8");
const EXAMPLES = [...README.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code]) => code as string);
const run = promisify(execFile);

const clean = mkdtempSync(join(tmpdir(), "tenure-clean-"));
let agent: TestAgent;
before(async () => {
  const { stdout } = await run("npm", ["pack", "--ignore-scripts", "--silent", "--pack-destination", clean], { cwd: ROOT });
  writeFileSync(join(clean, "package.json"), JSON.stringify({ name: "clean", private: true, type: "module" }));
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", `./${stdout.trim()}`], { cwd: clean });
  // Types of Node for the compiler, which users have; nothing that runs.
  symlinkSync(join(ROOT, "node_modules/@types"), join(clean, "node_modules/@types"));
  symlinkSync(join(ROOT, "node_modules/undici-types"), join(clean, "node_modules/undici-types"));
  agent = await startAgent();
});
after(async () => {
  await agent?.close();
  rmSync(clean, { recursive: true });
});

test("the package has no dependencies, and its types but nothing of its tests", async () => {
  const installed = join(clean, "node_modules/tenure");
  assert.equal(JSON.parse(readFileSync(join(installed, "package.json"), "utf8")).dependencies, undefined);
  const { stdout } = await run("find", [installed, "-type", "f", "-printf", "%P\n"]);
  const files = stdout.trim().split("\n");
  assert.ok(files.includes("dist/index.d.ts") && files.includes("README.md"));
  assert.deepEqual(files.filter((name) => !/^(dist\/.*\.(js|d\.ts)|package\.json|README\.md)$/.test(name)), []);
});

test("every example of the README compiles and runs from the installed package", async (context) => {
  assert.ok(EXAMPLES.length >= 6);
  const names = EXAMPLES.map((code, index) => {
    writeFileSync(join(clean, `example${index}.ts`), code);
    return `example${index}`;
  });
  const using = `import { tenure } from "tenure";\nawait using lead = await tenure.leader("using").acquire();\nconsole.log(lead.isHeld());\n`;
  writeFileSync(join(clean, "using.ts"), using);
  const options = ["--strict", "--target", "es2022", "--lib", "es2023,esnext.disposable", "--module", "nodenext", "--types", "node"];
  const all = [...names, "using"];
  await run(process.execPath, [join(ROOT, "node_modules/typescript/bin/tsc"), ...options, ...all.map((name) => `${name}.ts`)], { cwd: clean }).catch(
    (error: { stdout: string }) => assert.fail(error.stdout),
  );
  for (const name of all) {
    await context.test(name, async () => {
      await run(process.execPath, [`${name}.js`], { cwd: clean, env: { ...process.env, TENURE_SOCKET: agent.socket } });
    });
  }
  assert.equal((await run(process.execPath, ["example0.js"], { cwd: clean, env: { ...process.env, TENURE_SOCKET: agent.socket } })).stdout.startsWith("leader with token"), true);
});

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { startAgent, type TestAgent } from "tenure/testing";

import { until } from "./until.js";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const README = readFileSync(join(ROOT, "README.md"), "utf8");
const EXAMPLES = [...README.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code]) => code as string);
const INSTALL = /^```sh\n(.*?)^```$/ms.exec(README)?.[1];
const SOURCES = ["src", "examples", "README.md", "package.json", "package-lock.json", "tsconfig.json"];
const run = promisify(execFile);

const clean = mkdtempSync(join(tmpdir(), "tenure-clean-"));
let agent: TestAgent;
before(async () => {
  // As a reader does it, but that what the tests' own installation fetched is fetched once.
  const [pack, install] = (INSTALL as string).replaceAll("/tmp", clean).trim().split("\n") as [string, string];
  const env = { ...process.env, npm_config_prefer_offline: "true", npm_config_audit: "false", npm_config_fund: "false" };
  const source = join(clean, "clone/client-sdk/typescript");
  for (const name of SOURCES) cpSync(join(ROOT, name), join(source, name), { recursive: true });
  await run("bash", ["-ec", pack], { cwd: join(clean, "clone"), env });
  writeFileSync(join(clean, "package.json"), JSON.stringify({ name: "clean", private: true, type: "module" }));
  await run("bash", ["-ec", install], { cwd: clean, env });
  // Types for the compiler, which users have, and the server that an example runs in.
  symlinkSync(join(ROOT, "node_modules/@types"), join(clean, "node_modules/@types"));
  for (const name of ["undici-types", "express"]) symlinkSync(join(ROOT, "node_modules", name), join(clean, "node_modules", name));
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
  assert.deepEqual(files.filter((name) => !/^(dist\/.*\.(js|d\.ts)|examples\/.*\.ts|package\.json|README\.md)$/.test(name)), []);
  const links = [...README.matchAll(/\]\(([^)]+)\)/g)].map(([, target]) => target as string);
  assert.ok(links.length > 0);
  assert.deepEqual(links.filter((target) => !/^https:/.test(target) && !files.includes(target)), [], "links lead to files of the package");
});

const environment = (): NodeJS.ProcessEnv => ({ ...process.env, TENURE_SOCKET: agent.socket });

/** The one that the package is built with, and the newest. */
const COMPILERS = ["node_modules/typescript/bin/tsc", "tests/packages/node_modules/typescript-newest/bin/tsc"].map((path) => join(ROOT, path));
const OPTIONS = ["--strict", "--target", "es2022", "--module", "nodenext"];

/** Compiles programs of a folder, with each compiler. */
async function compile(names: readonly string[], cwd = clean, options: readonly string[] = ["--types", "node"]): Promise<void> {
  const files = names.map((name) => `${name}.ts`);
  for (const compiler of COMPILERS) {
    await run(process.execPath, [compiler, ...OPTIONS, ...options, ...files], { cwd }).catch((error: { stdout: string }) => assert.fail(error.stdout));
  }
}

async function output(name: string): Promise<string> {
  return (await run(process.execPath, [`${name}.js`], { cwd: clean, env: environment() })).stdout;
}

/** Has a server's example answer eight requests at once, and end. */
function served(code: string): string {
  return `import { once } from "node:events";
${code.replace("listen(8080)", 'listen(0, "127.0.0.1")')}
await once(server, "listening");
const { port } = server.address() as { port: number };
const post = async (): Promise<string> => {
  const reply = await fetch(\`http://127.0.0.1:\${port}/reports\`, { method: "POST" });
  return \`\${reply.status} \${(await reply.text()).split("\\n")[0]}\`;
};
console.log((await Promise.all(Array.from({ length: 8 }, post))).join("\\n"));
server.closeAllConnections();
server.close();
`;
}

test("every example of the README compiles and runs from the installed package", async (context) => {
  assert.ok(EXAMPLES.length >= 6);
  const names = EXAMPLES.map((code, index) => {
    writeFileSync(join(clean, `example${index}.ts`), code.includes("listen(8080)") ? served(code) : code);
    return `example${index}`;
  });
  const using = `import { tenure } from "tenure";\nawait using lead = await tenure.leader("using").acquire();\nconsole.log(lead.isHeld());\n`;
  writeFileSync(join(clean, "using.ts"), using);
  // Of the repository's own, with what it leaves to its reader.
  const [example] = /(?<=^```ts\n).*?(?=^```)/ms.exec(readFileSync(join(ROOT, "../../README.md"), "utf8")) as unknown as [string];
  const around = `import { tenure } from "tenure";\nconst cleanUp = (token: bigint, signal: AbortSignal): void => console.log(token, signal.aborted);\n`;
  writeFileSync(join(clean, "repository.ts"), around + example);
  const all = [...names, "using", "repository"];
  await compile(all);
  for (const name of all) await context.test(name, async () => void (await output(name)));
  assert.match(await output("example0"), /^leader with token/);
  assert.match(await output("repository"), /^\d+n false/);
  const replies = (await output(names[EXAMPLES.findIndex((code) => code.includes("express"))] as string)).trim().split("\n");
  assert.equal(new Set(replies).size, 8, `${replies}`);
  for (const reply of replies) assert.match(reply, /^200 report \d+$/);
});

test("the first example compiles where nothing but a compiler is installed", async () => {
  const bare = mkdtempSync(join(tmpdir(), "tenure-bare-"));
  try {
    cpSync(join(clean, "node_modules/tenure"), join(bare, "node_modules/tenure"), { recursive: true });
    writeFileSync(join(bare, "package.json"), JSON.stringify({ private: true, type: "module" }));
    writeFileSync(join(bare, "first.ts"), EXAMPLES[0] as string);
    await compile(["first"], bare, []);
  } finally {
    rmSync(bare, { recursive: true });
  }
});

test("a program of CommonJS imports the package, and requires it where its Node can", async () => {
  const ways = [`await import("tenure"), await import("tenure/compat"), await import("tenure/testing")`];
  if ("require_module" in process.features) ways.push(`require("tenure"), require("tenure/compat"), require("tenure/testing")`);
  for (const [index, way] of ways.entries()) {
    const text = `(async () => {
      const [{ tenure, Lost }, compat, { startAgent }] = [${way}];
      const same = (await import("tenure")).Lost === Lost;
      await tenure.leader("required").run((hold) => console.log(hold.isHeld(), same, typeof startAgent, Object.keys(compat).length > 0));
    })();`;
    writeFileSync(join(clean, `program${index}.cjs`), text);
    const { stdout } = await run(process.execPath, [`program${index}.cjs`], { cwd: clean, env: environment() });
    assert.equal(stdout, "true true function true\n");
  }
});

/** A replica of the example, and what it has said. */
function replica(): { readonly said: string[]; end(): Promise<void> } {
  const child = spawn(process.execPath, ["replica.js"], { cwd: clean, env: environment(), stdio: ["ignore", "pipe", "inherit"] });
  const said: string[] = [];
  let rest = "";
  child.stdout.on("data", (chunk: Buffer) => {
    const lines = (rest + chunk.toString()).split("\n");
    rest = lines.pop() as string;
    said.push(...lines.map((line) => line.replace(/^\d+ /, "")));
  });
  return {
    said,
    end: async () => {
      child.kill("SIGTERM");
      await until("the replica to end", () => child.exitCode !== null || child.signalCode !== null);
      assert.equal(child.exitCode, 0);
    },
  };
}

test("the programs of the folder examples do what they say", async () => {
  const names = readdirSync(join(ROOT, "examples")).map((file) => file.replace(/\.ts$/, ""));
  for (const name of names) cpSync(join(ROOT, "examples", `${name}.ts`), join(clean, `${name}.ts`));
  await compile(names);
  assert.deepEqual(names.sort(), ["fenced", "replica", "workers"]);
  assert.match(await output("fenced"), /^somebody with a greater token than \d+ has written\nthe second\n$/);
  assert.equal(await output("workers"), "10 done, at most 3 at once\n");

  const tokens: bigint[] = [];
  let replicas = [replica(), replica(), replica()];
  while (replicas.length > 0) {
    const leader = await until("a replica to lead", () => replicas.find(({ said }) => said.some((line) => line.startsWith("leads"))));
    await until("both loops to work", () => ["watch works", "reconcile works"].every((words) => leader.said.some((line) => line.startsWith(words))));
    for (const other of replicas.filter((one) => one !== leader)) assert.deepEqual(other.said, []);
    await leader.end();
    assert.deepEqual(leader.said.slice(-3).sort(), ["reconcile stopped", "resigned", "watch stopped"]);
    tokens.push(BigInt(/\d+$/.exec(leader.said[0] as string)?.[0] as string));
    replicas = replicas.filter((one) => one !== leader);
  }
  assert.deepEqual(tokens, [...tokens].sort((one, other) => (one < other ? -1 : 1)));
});

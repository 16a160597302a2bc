// Runs the script without node:test, which Bun and Deno have in part; an argument is a part of a scenario's name, and
// without one the slow scenarios are left out.

import { runScenario } from "./runner.js";
import { scenarios, skipped } from "./script.js";

let failed = 0;
const wanted = process.argv[2] ?? "";
for (const scenario of scenarios().filter(({ name, slow }) => (wanted === "" ? !slow : name.includes(wanted)))) {
  const reason = skipped(scenario);
  const failure = reason === undefined ? await runScenario(scenario).then(() => undefined, (error: unknown) => error) : undefined;
  if (failure !== undefined) failed++;
  console.log(`${failure === undefined ? (reason === undefined ? "ok" : "skipped") : "FAILED"} ${scenario.name}${reason ? `: ${reason}` : ""}`);
  if (failure !== undefined) console.log(failure);
}
process.exitCode = failed === 0 ? 0 : 1;

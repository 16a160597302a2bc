import { test } from "node:test";

import { runScenario } from "./conformance/runner.js";
import { scenarios, skipped } from "./conformance/script.js";

// What blocks this process for long runs in one of its own, beside the others: `run` starts it.
for (const scenario of scenarios().filter(({ slow }) => !slow)) {
  test(scenario.name, { skip: skipped(scenario) ?? false }, () => runScenario(scenario));
}

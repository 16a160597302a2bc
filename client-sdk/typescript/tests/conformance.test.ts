import { test } from "node:test";

import { runScenario } from "./conformance/runner.js";
import { scenarios, skipped } from "./conformance/script.js";

for (const scenario of scenarios()) {
  test(scenario.name, { skip: skipped(scenario) ?? false }, () => runScenario(scenario));
}

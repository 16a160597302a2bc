import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { reference } from "./reference.js";

test("the reference is that of the package", () => {
  const written = readFileSync(new URL("../../../docs/typescript.md", import.meta.url), "utf8");
  assert.ok(written === reference(), "make it anew: node build/reference.js >../../docs/typescript.md");
});

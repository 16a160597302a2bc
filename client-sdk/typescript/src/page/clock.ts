// The clock of valid-untils: CLOCK_BOOTTIME, which goes on counting while the machine sleeps. JavaScript
// cannot read it (`process.hrtime` is CLOCK_MONOTONIC, which stands still meanwhile), but /proc/uptime shows
// it, rounded down to 10 ms. Deno reads nothing of /proc without `--allow-all`; there the clock goes by whole seconds.

import { openSync, readSync } from "node:fs";
import { uptime } from "node:os";

/** The step of /proc/uptime, ns. */
export const STEP_NS = 10_000_000n;
const SECOND_NS = 1_000_000_000n;
/** No instant is later, so that nothing counts as held. */
export const END_OF_TIME = (1n << 64n) - 1n;

const POINT = 0x2e;
const ZERO = 0x30;
const buffer = Buffer.allocUnsafe(64);
let file: number | undefined;
/** True once Deno has refused to read /proc/uptime. */
let isCoarse = false;

/**
 * The latest instant that it can be now, in ns since boot: up to 10 ms later than now, with whole seconds up to 2 s. A hold
 * that is valid at this instant is valid now. {@link END_OF_TIME} where the clock cannot be read.
 */
export function latestNow(): bigint {
  const steps = readSteps();
  if (steps !== undefined) return (BigInt(steps) + 1n) * STEP_NS;
  const seconds = readSeconds();
  return seconds === undefined ? END_OF_TIME : (BigInt(seconds) + 1n) * SECOND_NS;
}

/** The earliest instant that it can be now, in ns since boot; undefined where the clock cannot be read. */
export function earliestNow(): bigint | undefined {
  const steps = readSteps();
  if (steps !== undefined) return BigInt(steps) * STEP_NS;
  const seconds = readSeconds();
  return seconds === undefined ? undefined : (BigInt(seconds) - 1n) * SECOND_NS;
}

/** Whole hundredths of a second since boot. */
function readSteps(): number | undefined {
  if (isCoarse) return undefined;
  let length;
  try {
    file ??= openSync("/proc/uptime", "r");
    length = readSync(file, buffer, 0, buffer.length, 0);
  } catch (error) {
    isCoarse = (error as Error).name === "NotCapable";
    return undefined;
  }
  return parse(buffer, length);
}

/** Whole seconds since boot. Linux rounds them up; where another system stands for it, they may be rounded down. */
function readSeconds(): number | undefined {
  try {
    return isCoarse ? uptime() : undefined;
  } catch {
    return undefined;
  }
}

/** Reads `12345.67 …`; undefined for anything else. */
export function parse(bytes: Uint8Array, length: number): number | undefined {
  let steps = 0;
  let at = 0;
  for (; at < length && bytes[at] !== POINT; at++) {
    const digit = (bytes[at] as number) - ZERO;
    if (digit < 0 || digit > 9) return undefined;
    steps = steps * 10 + digit;
  }
  if (at === 0 || at + 2 >= length) return undefined;
  for (const end = at + 2; at < end; ) {
    const digit = (bytes[++at] as number) - ZERO;
    if (digit < 0 || digit > 9) return undefined;
    steps = steps * 10 + digit;
  }
  return steps;
}

/** Answers count whole ms. */
const ROUNDING_NS = 2_000_000n;

/**
 * By how much this process's clock differs from the agent's, or undefined if it is the same: a process in
 * another time namespace shares the agent's boot, but not its clock. The arguments are those of a grant. A
 * clock that is ahead is only seen when `validMs` has not passed, and shows no hold as valid.
 */
export function clockDifference(validMs: number, validUntil: bigint): string | undefined {
  const now = latestNow();
  if (now === END_OF_TIME) {
    return "this program cannot read the agent's clock: /proc/uptime is missing, or this program has no permission to read it; "
      + "use Linux, with /proc mounted (Node's flag is --allow-fs-read=/proc/uptime, Deno's --allow-sys=osUptime)";
  }
  const latest = now + BigInt(validMs) * 1_000_000n + ROUNDING_NS;
  if (validUntil <= latest) return undefined;
  const seconds = (Number(validUntil - latest) / 1e9).toFixed(1);
  return `this program's clock is ${seconds} s behind the agent's: a time namespace, or a /proc/uptime of the container's own; run both with the same clock`;
}

import assert from "node:assert/strict";
import fs, { readFileSync, mkdtempSync, openSync, renameSync, rmSync, writeSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import { STEP_NS, clockDifference, earliestNow, latestNow, parse } from "../dist/page/clock.js";
import { BOOT_ID_AT, SESSION_AT, SLOTS_AT, SLOT_SIZE, VALID_UNTIL_AT, VERSION_AT, uuidBytes } from "../dist/page/layout.js";
import { Page, slotOf } from "../dist/page/reader.js";

const SESSION = "00112233-4455-6677-8899-aabbccddeeff";
const BOOT = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee";
const HOLD = "12345678-1234-1234-1234-123456789abc";
const OTHER = "12345678-1234-1234-1234-123456789abd";
const SECOND = 1_000_000_000n;

const directory = mkdtempSync(join(tmpdir(), "tenure-page-"));
after(() => rmSync(directory, { recursive: true }));
let files = 0;

function page(slots = 63): Buffer {
  const bytes = Buffer.alloc(SLOT_SIZE * (slots + 1));
  bytes.write("TENUREP1", 0, "latin1");
  bytes.writeUInt32LE(1, VERSION_AT);
  bytes.writeUInt32LE(slots, SLOTS_AT);
  uuidBytes(SESSION).copy(bytes, SESSION_AT);
  uuidBytes(BOOT).copy(bytes, BOOT_ID_AT);
  return bytes;
}

function file(bytes: Buffer): string {
  const path = join(directory, String(files++));
  writeFileSync(path, bytes);
  return path;
}

function write(path: string, index: number, hold: string, validUntil: bigint): void {
  const slot = Buffer.alloc(SLOT_SIZE);
  uuidBytes(hold).copy(slot);
  slot.writeBigUInt64LE(validUntil, VALID_UNTIL_AT);
  writeSync(openSync(path, "r+"), slot, 0, SLOT_SIZE, SLOT_SIZE * (index + 1));
}

test("a slot says until when its hold is valid", () => {
  const path = file(page());
  const read = Page.open(path, SESSION, BOOT);
  const slot = slotOf(7, HOLD);
  assert.equal(read.held(slot), false);
  write(path, 7, HOLD, latestNow() + 60n * SECOND);
  assert.equal(read.held(slot), true);
  assert.equal(read.held(slotOf(7, OTHER)), false, "another hold's");
  assert.equal(read.held(slotOf(8, HOLD)), false, "another slot");
  assert.equal(read.held(slotOf(63, HOLD)), false, "no slot of the page");
  write(path, 7, HOLD, latestNow() - STEP_NS);
  assert.equal(read.held(slot), false, "over");
  write(path, 7, HOLD, 0n);
  assert.equal(read.held(slot), false, "voided");
  write(path, 7, HOLD, (1n << 64n) - 1n);
  assert.equal(read.held(slot), false, "no instant");
  write(path, 7, HOLD, latestNow() + 60n * SECOND);
  read.close();
  assert.equal(read.held(slot), false, "closed");
});

test("a hold is found in the slot that shows it as valid", () => {
  const path = file(page());
  const read = Page.open(path, SESSION, BOOT);
  const found = (index: number): number => read.find(slotOf(index, HOLD)).index;
  assert.equal(found(7), 7);
  write(path, 7, HOLD, 0n);
  write(path, 62, HOLD, latestNow() + 60n * SECOND);
  write(path, 5, OTHER, latestNow() + 90n * SECOND);
  assert.deepEqual([found(7), found(62), found(99)], [62, 62, 62]);
  read.close();
  assert.equal(found(7), 7);
});

test("what the last look has seen is read once, and anything else twice", (t) => {
  const path = file(page());
  const read = Page.open(path, SESSION, BOOT);
  const slot = slotOf(7, HOLD);
  const { mock } = t.mock.method(fs, "readSync");
  syncBuiltinESMExports();
  const looks = (validUntil: bigint, readings: number): void => {
    const before = mock.callCount();
    assert.equal(read.validUntil(slot), validUntil);
    assert.equal(mock.callCount() - before, readings);
  };
  try {
    looks(0n, 1);
    for (const validUntil of [SECOND, 2n * SECOND]) {
      write(path, 7, HOLD, validUntil);
      looks(validUntil, 2);
      looks(validUntil, 1);
    }
    write(path, 7, OTHER, 2n * SECOND);
    looks(0n, 1);
    write(path, 7, HOLD, 0n);
    looks(0n, 2);
  } finally {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  }
});

test("the last slot of the largest page is read", () => {
  const path = file(page(4095));
  const read = Page.open(path, SESSION, BOOT);
  write(path, 4094, HOLD, latestNow() + 60n * SECOND);
  assert.equal(read.held(slotOf(4094, HOLD)), true);
});

test("a page of another session, boot, version or size is refused", () => {
  const refused = (change: (bytes: Buffer) => Buffer | void, expected: RegExp): void => {
    const bytes = page();
    const path = file(change(bytes) ?? bytes);
    assert.throws(() => Page.open(path, SESSION, BOOT), expected);
  };
  refused((bytes) => void bytes.write("X"), /it begins with "XENUREP1"/);
  refused((bytes) => void bytes.writeUInt32LE(2, VERSION_AT), /it has version 2, not 1/);
  refused((bytes) => void bytes.writeUInt32LE(64, SLOTS_AT), /it says that it has 64 slots, and has 4096 bytes/);
  refused((bytes) => void bytes.writeUInt32LE(4096, SLOTS_AT), /4096 slots/);
  refused((bytes) => void bytes.writeUInt8(1, SESSION_AT), /it is of session 01112233-/);
  refused((bytes) => void bytes.writeUInt8(1, BOOT_ID_AT), /it is of boot 01aaaaaa-/);
  refused((bytes) => bytes.subarray(0, 63), /shorter than 64 bytes/);
  assert.throws(() => Page.open(join(directory, "none"), SESSION, BOOT), /cannot be opened/);
});

test("a newer page in its place is noticed", () => {
  const path = file(page());
  const read = Page.open(path, SESSION, BOOT);
  assert.equal(read.isAt(path), true);
  renameSync(file(page()), path);
  assert.equal(read.isAt(path), false);
});

test("the clock is never behind the time since boot", () => {
  for (let turn = 0; turn < 1000; turn++) {
    const earliest = earliestNow();
    const shown = BigInt(readFileSync("/proc/uptime", "latin1").split(" ")[0]!.replace(".", "")) * STEP_NS;
    assert.ok(earliest !== undefined && earliest <= shown);
    assert.ok(shown < latestNow());
  }
});

test("only an uptime is read as one", () => {
  const check = (text: string, expected: number | undefined): void =>
    assert.equal(parse(Buffer.from(text), Buffer.byteLength(text)), expected, text);
  check("12345.67 9.00\n", 1234567);
  check("0.05 0.00\n", 5);
  check("", undefined);
  check(".12 1\n", undefined);
  check("12.3", undefined);
  check("12.x4 \n", undefined);
  check("a12.34 \n", undefined);
  check("1234 \n", undefined);
});

test("another clock is told from a slow answer", () => {
  const now = earliestNow()!;
  assert.equal(clockDifference(30_000, now + 30n * SECOND), undefined);
  assert.equal(clockDifference(30_000, now + 29n * SECOND), undefined);
  assert.match(clockDifference(30_000, now + 330n * SECOND)!, /is 300\.0 s behind the agent's: a time namespace/);
});

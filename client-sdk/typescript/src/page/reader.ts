import { closeSync, fstatSync, openSync, readSync, statSync } from "node:fs";

import { PageError } from "../errors.js";
import { END_OF_TIME, latestNow } from "./clock.js";
import {
  BOOT_ID_AT, HOLD_AT, MAGIC, SESSION_AT, SLOTS_AT, SLOTS_MAX, SLOT_SIZE, UUID_SIZE, VALID_UNTIL_AT, VERSION,
  VERSION_AT, uuidBytes, uuidText,
} from "./layout.js";

/** Readings of a slot that may differ from each other before it counts as not held. */
const READINGS_MAX = 8;

/** The hold's place on the page. */
export interface Slot {
  readonly index: number;
  readonly hold: Uint8Array;
  /** The valid-until of the last look. */
  seen: bigint;
}

export function slotOf(index: number, hold: string): Slot {
  return { index, hold: uuidBytes(hold), seen: 0n };
}

/**
 * A session's page. JavaScript has no shared mapping of a file, so each question reads the file: it is right even
 * when the agent is stopped or dead.
 */
export class Page {
  readonly #file: number;
  readonly #slots: number;
  readonly #identity: string;
  readonly #reading = Buffer.alloc(SLOT_SIZE);
  #open = true;

  private constructor(file: number, slots: number, identity: string) {
    this.#file = file;
    this.#slots = slots;
    this.#identity = identity;
  }

  /** Opens the page at `path` and checks that it is the page of that session in that boot. */
  static open(path: string, session: string, bootId: string): Page {
    let file: number;
    try {
      file = openSync(path, "r");
    } catch (cause) {
      throw new PageError(
        `the page ${path} cannot be opened: it is readable by the user who registered, and in a container only where the agent's runtime directory is mounted at the same path`,
        { cause },
      );
    }
    try {
      const status = fstatSync(file);
      const head = Buffer.alloc(SLOT_SIZE);
      const length = readSync(file, head, 0, SLOT_SIZE, 0);
      const wrong = difference(head, length, status.size, session, bootId);
      if (wrong !== undefined) {
        throw new PageError(`${path} is not this session's page: ${wrong}; is the agent of another version?`);
      }
      return new Page(file, head.readUInt32LE(SLOTS_AT), `${status.dev}:${status.ino}`);
    } catch (error) {
      closeSync(file);
      throw error;
    }
  }

  /** True if `path` still names this very file, rather than a newer one in its place. */
  isAt(path: string): boolean {
    try {
      const now = statSync(path);
      return `${now.dev}:${now.ino}` === this.#identity;
    } catch {
      return false;
    }
  }

  /** Until when the hold is valid, ns; 0 when it is not held, or the slot is another hold's by now. */
  validUntil(slot: Slot): bigint {
    if (!this.#open || slot.index >= this.#slots) return 0n;
    let before = slot.seen;
    for (let reading = 0; reading < READINGS_MAX; reading++) {
      const validUntil = this.#read(slot);
      if (validUntil === undefined) return 0n;
      // A slot changes its owner by valid-until zero, the new hold, its valid-until. A read copies in no
      // promised order, and may meet a store halfway. Two that agree met none: the former's valid-until
      // was read before the latter saw the hold. Between two renewals the last look has read the former.
      if (validUntil === before) return (slot.seen = validUntil);
      before = validUntil;
    }
    return 0n;
  }

  /** True if the hold is valid at this instant; within 10 ms of its end false already. */
  held(slot: Slot): boolean {
    const validUntil = this.validUntil(slot);
    // The clock comes last: a thread that was stopped in between must not see an earlier now.
    return validUntil !== 0n && latestNow() < validUntil;
  }

  /** The slot of the hold: `slot`, unless the page shows it as valid elsewhere. */
  find(slot: Slot): Slot {
    if (!this.#open) return slot;
    const content = Buffer.alloc(SLOT_SIZE * (this.#slots + 1));
    try {
      readSync(this.#file, content, 0, content.length, 0);
    } catch {
      return slot;
    }
    let found = slot;
    for (let at = content.indexOf(slot.hold, SLOT_SIZE); at >= 0; at = content.indexOf(slot.hold, at + 1)) {
      if ((at - HOLD_AT) % SLOT_SIZE !== 0) continue;
      const candidate = { index: (at - HOLD_AT) / SLOT_SIZE - 1, hold: slot.hold, seen: 0n };
      if (this.validUntil(candidate) > this.validUntil(found)) found = candidate;
    }
    return found;
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    closeSync(this.#file);
  }

  #read(slot: Slot): bigint | undefined {
    const reading = this.#reading;
    try {
      if (readSync(this.#file, reading, 0, SLOT_SIZE, SLOT_SIZE * (slot.index + 1)) < SLOT_SIZE) return undefined;
    } catch {
      return undefined;
    }
    if (reading.compare(slot.hold, 0, UUID_SIZE, HOLD_AT, HOLD_AT + UUID_SIZE) !== 0) return undefined;
    const validUntil = reading.readBigUInt64LE(VALID_UNTIL_AT);
    return validUntil === END_OF_TIME ? undefined : validUntil;
  }
}

function difference(head: Buffer, length: number, size: number, session: string, bootId: string): string | undefined {
  if (length < SLOT_SIZE) return `it is shorter than ${SLOT_SIZE} bytes`;
  const magic = head.toString("latin1", 0, MAGIC.length);
  if (magic !== MAGIC) return `it begins with ${JSON.stringify(magic)}, not with ${JSON.stringify(MAGIC)}`;
  const version = head.readUInt32LE(VERSION_AT);
  if (version !== VERSION) return `it has version ${version}, not ${VERSION}`;
  const slots = head.readUInt32LE(SLOTS_AT);
  if (slots > SLOTS_MAX || size < SLOT_SIZE * (slots + 1)) return `it says that it has ${slots} slots, and has ${size} bytes`;
  const of = uuidText(head.subarray(SESSION_AT, SESSION_AT + UUID_SIZE));
  if (of !== session) return `it is of session ${of}, not ${session}`;
  const boot = uuidText(head.subarray(BOOT_ID_AT, BOOT_ID_AT + UUID_SIZE));
  if (boot !== bootId) return `it is of boot ${boot}, not ${bootId}`;
  return undefined;
}

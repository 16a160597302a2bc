// Layout of the validity page: a file of 64·(slots+1) bytes, little endian.

export const MAGIC = "TENUREP1";
export const VERSION = 1;
/** Most slots on a page. */
export const SLOTS_MAX = 4095;
/** Size of the header and of each slot, bytes. */
export const SLOT_SIZE = 64;

export const VERSION_AT = 8;
export const SLOTS_AT = 12;
export const SESSION_AT = 16;
export const BOOT_ID_AT = 32;

/** Offsets in a slot. */
export const HOLD_AT = 0;
export const VALID_UNTIL_AT = 24;

export const UUID_SIZE = 16;

export function uuidBytes(uuid: string): Buffer {
  return Buffer.from(uuid.replaceAll("-", ""), "hex");
}

export function uuidText(bytes: Buffer): string {
  const hex = bytes.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** A length of time: a number of ms, or text such as `"5s"`, `"500ms"`, `"1h 30m"`. */
export type Duration = number | string;

const MS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const TEXT = /^\s*(?:\d+(?:\.\d+)?\s*(?:ms|s|m|h|d)\s*)+$/;

/** Whole ms. `what` names the option in the error. */
export function milliseconds(duration: Duration, what: string): number {
  let ms: number;
  if (typeof duration === "number") {
    ms = duration;
  } else if (TEXT.test(duration)) {
    const parts = duration.matchAll(/(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)/g);
    ms = [...parts].reduce((sum, [, count, unit]) => sum + Number(count) * (MS[unit as string] as number), 0);
  } else {
    ms = Number.NaN;
  }
  if (!(ms >= 0 && Number.isSafeInteger(Math.round(ms)))) {
    throw new TypeError(`${what} is ${JSON.stringify(duration)}: give a number of ms, or text such as "5s" or "1h 30m"`);
  }
  return Math.round(ms);
}

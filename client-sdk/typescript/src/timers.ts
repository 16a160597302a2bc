// Timers that do not keep the program running, and the one that does.

/** The longest that a timer can be set for, ms. */
export const TIMER_MAX_MS = 0x7fff_ffff;

export function unref(timer: ReturnType<typeof setTimeout>): ReturnType<typeof setTimeout> {
  timer.unref();
  return timer;
}

/** Waits that long, or until `signal` aborts; never rejects. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = unref(setTimeout(done, ms));
    signal?.addEventListener("abort", done, { once: true });
  });
}

let waiting = 0;
let anchor: ReturnType<typeof setInterval> | undefined;

/** Keeps the program running while `work` is pending: somebody waits for it. */
export async function awake<T>(work: Promise<T>): Promise<T> {
  waiting++;
  anchor ??= setInterval(() => {}, TIMER_MAX_MS);
  try {
    return await work;
  } finally {
    if (--waiting === 0) {
      clearInterval(anchor);
      anchor = undefined;
    }
  }
}

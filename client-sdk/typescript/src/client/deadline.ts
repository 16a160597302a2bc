import { TIMER_MAX_MS } from "../timers.js";

/**
 * Calls `expire` once `ms` have passed in which `progress` returned the same number. A program whose event loop
 * was blocked reads what has come meanwhile before it is told that nothing came. Returns how to give up.
 */
export function deadline(ms: number, progress: () => number, expire: () => void): () => void {
  let over = false;
  let timer: ReturnType<typeof setTimeout>;
  let left = ms;
  const arm = (): void => {
    const step = Math.min(left, TIMER_MAX_MS);
    left -= step;
    timer = setTimeout(() => {
      if (left > 0) return arm();
      const seen = progress();
      // Timers come before what was read; an immediate comes after.
      setImmediate(() => {
        if (over) return;
        if (progress() === seen) return expire();
        left = ms;
        arm();
      });
    }, step);
  };
  arm();
  return () => {
    over = true;
    clearTimeout(timer);
  };
}

/** A condition that a test waits for is given up after this, ms. */
const DEADLINE_MS = 30_000;

/** Waits until `condition` returns something true, and returns that. */
export async function until<T>(what: string, condition: () => T | Promise<T>): Promise<NonNullable<T>> {
  for (const end = performance.now() + DEADLINE_MS; ; ) {
    const value = await condition();
    if (value) return value as NonNullable<T>;
    if (performance.now() > end) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

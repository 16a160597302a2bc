import { AsyncResource } from "node:async_hooks";

const root = new AsyncResource("root");

/** Starts `work` as a task that the running one has not started, such as another program's. */
export function apart<T>(work: () => T): T {
  return root.runInAsyncScope(work);
}

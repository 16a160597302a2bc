import { Backoff } from "../backoff.js";
import type { EventStream } from "../client/stream.js";
import { Refused } from "../errors.js";
import type { Core } from "./core.js";

/** Refusals of which trying again may meet another answer. */
const PASSING = new Set(["upstream_unavailable", "stopping", "quota_exceeded"]);

/**
 * Applies the events of an open stream; opens it again whenever it breaks. Ends when the session is over.
 */
export async function drive(core: Core, first: EventStream): Promise<void> {
  let stream: EventStream | undefined = first;
  let number = core.streams;
  let lastEventId: number | undefined;
  while (stream !== undefined) {
    const current = stream;
    const close = (): void => current.close();
    core.over.addEventListener("abort", close, { once: true });
    const how = await current.read(({ id, event }) => {
      lastEventId = id ?? lastEventId;
      core.apply(event, number);
      if (event.type === "shutdown" && event.cause === "session_ended") {
        core.agentKnows = true;
        core.end("the agent says that it ended");
      }
    });
    core.over.removeEventListener("abort", close);
    if (core.gone !== undefined) return;
    // What cannot be read once cannot be read again: go on from a snapshot.
    if (how === "unreadable") lastEventId = undefined;
    core.setState("reconnecting");
    const backoff = new Backoff();
    for (stream = undefined; stream === undefined && core.gone === undefined; ) {
      // From here on a new hold may be missing from the coming snapshot.
      number = ++core.streams;
      try {
        stream = await reopen(core, lastEventId);
      } catch (error) {
        if (error instanceof Refused && !PASSING.has(error.problem.code)) {
          core.agentKnows = true;
          return core.end(error.message);
        }
        await backoff.wait(core.over);
      }
    }
    if (core.gone !== undefined) return stream?.close();
    core.setState("connected");
  }
}

/** Proves that the session is ours, since the agent may be another than before; then listens. */
async function reopen(core: Core, lastEventId: number | undefined): Promise<EventStream> {
  const resume = { session: core.session, secret: core.registered.secret };
  const registered = await core.client.register({ resume });
  core.followPage(registered.page);
  return core.client.events(core.session, lastEventId);
}

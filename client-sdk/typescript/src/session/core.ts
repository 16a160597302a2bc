import { Backoff } from "../backoff.js";
import type { Client } from "../client/client.js";
import type { EventStream } from "../client/stream.js";
import { SessionGone, isTransient } from "../errors.js";
import { Cell } from "../hold/cell.js";
import { Page } from "../page/reader.js";
import type { Acquired, Event, HoldView, Kind, Register, Registered, Waiting } from "../wire.js";
import { drive } from "./driver.js";
import type { Subscribers } from "./subscribers.js";
import { Warden } from "./warden.js";

/**
 * Losses remembered for holds whose grant is still on its way here; the oldest is forgotten, and the page then
 * shows the loss without a reason.
 */
const EARLY_LOSSES_MAX = 64;

type LostEvent = Extract<Event, { type: "lost" }>;

export type State = "connected" | "reconnecting" | SessionGone;

/** The state that a session's handle, its holds and its stream share. */
export class Core {
  readonly client: Client;
  /** The registration as it was asked for. */
  readonly register: Register;
  readonly registered: Registered;
  readonly subscribers: Subscribers;
  /** Streams asked for so far. */
  streams = 1;
  /** The agent has ended the session, so that it need not be told. */
  agentKnows = false;
  readonly #over = new AbortController();
  readonly #cells = new Map<string, Cell>();
  readonly #earlyLosses = new Map<string, LostEvent>();
  readonly #warden = new Warden(this);
  #page: Page;
  #state: State = "connected";
  /** Since when no agent has answered, ms of `performance.now()`; undefined while one does. */
  #awaySince: number | undefined;

  private constructor(client: Client, register: Register, registered: Registered, page: Page, subscribers: Subscribers) {
    this.client = client;
    this.subscribers = subscribers;
    this.register = register;
    this.registered = registered;
    this.#page = page;
  }

  /** Registers, opens the page, then the event stream: a session of that tether lives by it. */
  static async open(client: Client, register: Register, subscribers: Subscribers): Promise<Core> {
    const registered = await client.register(register);
    let page: Page | undefined;
    let stream: EventStream;
    try {
      page = Page.open(registered.page, registered.session, registered.bootId);
      stream = await client.events(registered.session);
    } catch (error) {
      page?.close();
      // The tether ends what the agent cannot be told.
      await client.release(registered.session).catch(() => {});
      throw error;
    }
    const core = new Core(client, register, registered, page, subscribers);
    void drive(core, stream);
    return core;
  }

  get session(): string {
    return this.registered.session;
  }

  get state(): State {
    return this.#state;
  }

  get gone(): SessionGone | undefined {
    return this.#state instanceof SessionGone ? this.#state : undefined;
  }

  /** Aborts when the session is over. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  get cells(): Iterable<Cell> {
    return this.#cells.values();
  }

  /** True if this session holds the resource, as far as this program knows. */
  holds(kind: Kind, name: string): boolean {
    return [...this.#cells.values()].some((cell) => cell.kind === kind && cell.name === name && cell.stage.is === "held");
  }

  cell(hold: string): Cell | undefined {
    return this.#cells.get(hold);
  }

  setState(to: "connected" | "reconnecting"): void {
    if (this.gone !== undefined) return;
    if (to === "connected") this.#awaySince = undefined;
    else this.#awaySince ??= performance.now();
    this.#state = to;
  }

  /** Why a hold was not renewed, as far as this program knows. */
  whyExpired(): string {
    const path = this.client.path;
    if (this.#awaySince === undefined) return `the agent at ${path} has not renewed it in time`;
    const seconds = (performance.now() - this.#awaySince) / 1000;
    return `no agent has answered at ${path} for ${seconds.toFixed(1)} s`;
  }

  validUntil(cell: Cell): bigint {
    return cell.slot === undefined ? 0n : this.#page.validUntil(cell.slot);
  }

  isHeld(cell: Cell): boolean {
    return cell.stage.is === "held" && cell.slot !== undefined && this.#page.held(cell.slot);
  }

  /**
   * The same by the page that is there now: a restarted agent may have made a new one, or given the hold another slot,
   * while this program was stopped.
   */
  shows(cell: Cell): boolean {
    if (this.isHeld(cell)) return true;
    this.lookAgain(cell);
    return this.isHeld(cell);
  }

  /** Finds a hold that is not seen to be held on the page that is there now. */
  lookAgain(cell: Cell): void {
    if (cell.stage.is !== "held" || cell.slot === undefined || this.gone !== undefined) return;
    this.expectOnPage(cell);
    cell.slot = this.#page.find(cell.slot);
  }

  /** Takes note that a hold was seen not to be held: it is lost once its valid-until has passed. */
  conclude(cell: Cell): void {
    this.#warden.conclude(cell);
  }

  /** Opens the file that is now at the page's path, if that is another than the open one. */
  followPage(path = this.registered.page): void {
    if (this.#page.isAt(path)) return;
    const page = Page.open(path, this.session, this.registered.bootId);
    this.#page.close();
    this.#page = page;
  }

  /**
   * Makes sure that a new grant can be seen: a restarted agent may have made a new page, and answered before the
   * event stream was open again.
   */
  expectOnPage(cell: Cell): void {
    if (this.isHeld(cell)) return;
    try {
      this.followPage();
    } catch {
      // A page that cannot be read shows nothing as held; the warden concludes from that.
    }
  }

  /** Takes note of a hold that the agent has just told about. */
  adopt(reply: Acquired | Waiting): Cell {
    let cell = this.#cells.get(reply.hold);
    if (cell === undefined) {
      cell = new Cell(reply, this.streams);
      this.#cells.set(cell.id, cell);
    }
    if (reply.state !== "waiting") cell.granted(reply);
    const early = this.#earlyLosses.get(cell.id);
    if (early !== undefined) {
      this.#earlyLosses.delete(cell.id);
      cell.lose(early.reason, true, early.by, early.detail);
    }
    if (this.gone !== undefined) cell.lose("session_gone", true);
    this.#warden.look(cell);
    return cell;
  }

  drop(cell: Cell): void {
    this.#cells.delete(cell.id);
  }

  /** Applies an event that came on the stream of that number. */
  apply(event: Event, stream: number): void {
    switch (event.type) {
      case "snapshot":
        this.#reconcile(event.holds, stream);
        break;
      case "granted":
      case "safe": {
        const cell = this.#cells.get(event.hold);
        cell?.granted(event);
        if (cell !== undefined) this.#warden.look(cell);
        break;
      }
      case "lost":
        this.#lose(event);
        break;
      case "released":
        this.#cells.get(event.hold)?.releasedElsewhere();
        break;
    }
    this.subscribers.send(event);
  }

  /** The session is no more. */
  end(why: string): void {
    if (this.gone !== undefined) return;
    this.#state = new SessionGone(why);
    for (const cell of [...this.#cells.values()]) cell.lose("session_gone", true);
    this.#over.abort(this.#state);
    this.#page.close();
  }

  /** Gives back a hold, or cancels a wait, until the agent has answered or the session is over. */
  async releaseInBackground(hold: string): Promise<void> {
    const backoff = new Backoff();
    while (this.gone === undefined) {
      try {
        await this.client.release(this.session, hold);
        return;
      } catch (error) {
        if (!isTransient(error)) return;
      }
      await backoff.wait(this.over);
    }
  }

  /** A hold of which the agent knows nothing any more is lost; a wait is to be asked for again. */
  #reconcile(holds: readonly HoldView[], stream: number): void {
    const views = new Map(holds.map((view) => [view.hold, view]));
    for (const cell of [...this.#cells.values()]) {
      const view = views.get(cell.id);
      if (view === undefined) {
        // Made after this stream was asked for: the snapshot may be older than the hold.
        if (cell.bornIn < stream) cell.forget();
      } else if ((view.state === "held" || view.state === "jeopardy") && view.token !== undefined) {
        cell.granted({ ...view, token: view.token });
      } else if (view.state === "released") {
        cell.releasedElsewhere();
      } else if (view.state === "lost") {
        cell.lose("forgotten", true);
      }
    }
    this.#warden.lookAtAll();
  }

  #lose(event: LostEvent): void {
    const { hold, reason, by, detail } = event;
    const cell = this.#cells.get(hold);
    if (cell !== undefined) return cell.lose(reason, true, by, detail);
    if (this.#earlyLosses.size === EARLY_LOSSES_MAX) {
      const [oldest] = this.#earlyLosses.keys();
      this.#earlyLosses.delete(oldest as string);
    }
    this.#earlyLosses.set(hold, event);
  }
}


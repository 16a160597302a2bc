import "./dispose.js";
import { Tenure } from "./tenure.js";

export type { Duration } from "./duration.js";
export {
  AgentUnavailable, Busy, ClocksDiffer, Lost, PageError, Refused, SessionGone, TenureError, UpstreamUnavailable,
  WaitTimeout, type Reason,
} from "./errors.js";
export { Hold } from "./hold/hold.js";
export {
  Resource, type AcquireOptions, type CampaignOptions, type LeaseOptions, type MasterOptions, type ResourceOptions,
  type SemaphoreOptions,
} from "./hold/resource.js";
export type { State as SessionState } from "./session/core.js";
export { Session, type SessionOptions } from "./session/session.js";
export { Tenure, type TenureOptions } from "./tenure.js";
export type {
  AgentInfo, AgentView, Attributes, Checkpointed, Code, Event, Grant, History, HistoryEntry, Holder, HoldState, HoldView,
  Kind, LimitChanged, LostReason, Problem, Registered, Revoke, Revoked, Role, Standing, Tether, Waiter, Why,
} from "./wire.js";

/** The agent on this host, found by itself. */
export const tenure = new Tenure();
export default tenure;

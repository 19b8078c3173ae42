//! How every state looks: one word, one icon, one tone. The tables are typed by the API's enumerations, so a new value does not compile until
//! it has a look.

import type {
  AllocationState,
  AuditResult,
  AuthorityState,
  ChainResult,
  Connectivity,
  Health,
  Lifecycle,
  MemberState,
  NodeState,
  OperationState,
  Recovery,
  SigningKeyState,
  StepState,
  TaskState,
  Workload,
} from "../api/types";
import type { Icon } from "./icons";

export type Tone = "healthy" | "running" | "attention" | "failed" | "muted";

export interface Look {
  word: string;
  tone: Tone;
  icon: Icon;
}

const well = (word: string): Look => ({ word, tone: "healthy", icon: "circle-check" });
const busy = (word: string): Look => ({ word, tone: "running", icon: "loader-circle" });
const planned = (word: string): Look => ({ word, tone: "muted", icon: "circle-dashed" });
const warned = (word: string): Look => ({ word, tone: "attention", icon: "triangle-alert" });
const broken = (word: string): Look => ({ word, tone: "failed", icon: "circle-x" });
const over = (word: string): Look => ({ word, tone: "muted", icon: "circle-slash" });
const paused = (word: string): Look => ({ word, tone: "muted", icon: "circle-pause" });
const awaited = (word: string): Look => ({ word, tone: "attention", icon: "clock" });

export interface States {
  allocation: AllocationState;
  audit: AuditResult;
  authority: AuthorityState;
  chain: ChainResult;
  connectivity: Connectivity;
  health: Health;
  lifecycle: Lifecycle;
  member: MemberState;
  node: NodeState;
  operation: OperationState;
  recovery: Recovery;
  signing_key: SigningKeyState;
  step: StepState;
  task: TaskState;
}

export const LOOKS: { [Kind in keyof States]: Record<States[Kind], Look> } = {
  allocation: {
    requested: planned("Requested"),
    provisioning: busy("Provisioning"),
    active: well("Active"),
    releasing: busy("Releasing"),
    released: over("Released"),
    failed: broken("Failed"),
    release_failed: broken("Release failed"),
  },
  audit: {
    accepted: { word: "Accepted", tone: "muted", icon: "circle-dot" },
    succeeded: well("Succeeded"),
    refused: warned("Refused"),
    failed: broken("Failed"),
  },
  authority: {
    staged: planned("Staged"),
    active: well("Active"),
    grace: { word: "Grace", tone: "muted", icon: "circle-dot" },
    retired: over("Retired"),
  },
  chain: {
    intact: well("Intact"),
    broken: broken("Broken"),
  },
  connectivity: {
    never: planned("Never connected"),
    connected: well("Connected"),
    stale: awaited("Stale"),
    unreachable: { word: "Unreachable", tone: "failed", icon: "unplug" },
  },
  health: {
    progressing: busy("Progressing"),
    healthy: well("Healthy"),
    degraded: warned("Degraded"),
    failed: broken("Failed"),
    none: over("Not judged"),
  },
  lifecycle: {
    requested: planned("Requested"),
    deploying: busy("Deploying"),
    running: well("Running"),
    stopping: busy("Stopping"),
    stopped: paused("Stopped"),
    starting: busy("Starting"),
    decommissioning: busy("Decommissioning"),
    decommissioned: over("Decommissioned"),
    failed: broken("Failed"),
    cancelled: over("Cancelled"),
  },
  member: {
    pending: planned("Pending"),
    preparing: busy("Preparing"),
    bootstrapping: busy("Bootstrapping"),
    joining: busy("Joining"),
    ready: well("Ready"),
    stopped: paused("Stopped"),
    draining: busy("Draining"),
    drained: paused("Drained"),
    removing: busy("Removing"),
    removed: over("Removed"),
    failed: broken("Failed"),
  },
  node: {
    registered: planned("Registered"),
    enrolled: busy("Enrolled"),
    active: well("Active"),
    needs_reimage: warned("Needs reimage"),
    retired: over("Retired"),
  },
  operation: {
    queued: planned("Queued"),
    running: busy("Running"),
    waiting: awaited("Waiting"),
    succeeded: well("Succeeded"),
    failed: broken("Failed"),
    cancelled: over("Cancelled"),
    needs_attention: warned("Needs attention"),
  },
  recovery: {
    none: well("None needed"),
    retrying: busy("Retrying"),
    reconciling: busy("Reconciling"),
    resumable: warned("Can be resumed"),
    repair_available: warned("Repair available"),
    manual_intervention: { word: "Needs a person", tone: "attention", icon: "circle-alert" },
    terminal: broken("Cannot be saved"),
  },
  signing_key: {
    staged: planned("Staged"),
    active: well("Active"),
    grace: { word: "Grace", tone: "muted", icon: "circle-dot" },
    retired: over("Retired"),
    revoked: broken("Revoked"),
  },
  step: {
    pending: planned("Pending"),
    running: busy("Running"),
    backoff: awaited("Waits to retry"),
    succeeded: well("Succeeded"),
    failed: broken("Failed"),
    skipped: over("Skipped"),
    cancelled: over("Cancelled"),
  },
  task: {
    dispatched: busy("Dispatched"),
    succeeded: well("Succeeded"),
    failed: broken("Failed"),
    expired: warned("Expired"),
    cancelled: over("Cancelled"),
    interrupted: warned("Interrupted"),
  },
};

export type StateKind = keyof States;

export function lookOf<Kind extends StateKind>(kind: Kind, value: States[Kind]): Look {
  // An older page may meet a value that a newer server has added.
  return LOOKS[kind][value] ?? { word: String(value), tone: "muted", icon: "circle-dot" };
}

/** The one state of a workload that a list and a header show: its lifecycle, and while it runs its health. */
export function workloadLook(workload: Pick<Workload, "lifecycle" | "health" | "usable">): Look {
  if (workload.lifecycle !== "running") return lookOf("lifecycle", workload.lifecycle);
  switch (workload.health) {
    case "degraded":
      return warned(workload.usable === true ? "Degraded, usable" : "Degraded, not usable");
    case "failed":
      return broken(workload.usable === true ? "Failed, usable" : "Failed");
    case "progressing":
      return busy("Settling");
    case "none":
      return lookOf("lifecycle", "running");
    case "healthy":
      return well("Healthy");
    default:
      // A value that a newer server has added.
      return lookOf("health", workload.health);
  }
}

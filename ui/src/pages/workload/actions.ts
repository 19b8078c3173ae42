//! What can be done with a workload now: only what the API offers, in the words of a button.

import type { Component } from "svelte";

import type { Member, OperationKind, Permission, Waiting, Workload, WorkloadDetail } from "../../api/types";
import { type ActionKind, actionOf, type NextAction } from "../../text/command";

/** A request to open the dialog of an action, with what is already known. */
export type ActionRequest = NextAction;

/** Props of `ActionDialog.svelte`, which shows the plan, asks, and runs it. */
export interface ActionDialogProps {
  request: ActionRequest;
  detail: WorkloadDetail;
  onclose: () => void;
  /** The operation began: the dialog closes by itself. */
  onstarted: () => void;
}

export type ActionDialogComponent = Component<ActionDialogProps>;

export const ACTION_LABELS: Record<ActionKind, string> = {
  deploy: "Deploy",
  add_member: "Add member",
  drain_member: "Drain",
  uncordon_member: "Uncordon",
  remove_member: "Remove",
  replace_member: "Replace",
  stop: "Stop",
  start: "Start",
  reconcile: "Reconcile",
  repair: "Repair",
  upgrade: "Upgrade",
  snapshot: "Take a snapshot",
  restore: "Restore",
  rotate_certificates: "Rotate certificates",
  decommission: "Decommission",
  resume: "Resume",
  cancel: "Cancel operation",
};

/** Kinds that concern one member; the page of the members offers them there. */
const OF_MEMBER = new Set<ActionKind>(["drain_member", "uncordon_member", "remove_member", "replace_member"]);

/**
 * The kinds that the workload as a whole offers now, `resume` first and `decommission` last. While an operation is open, the API offers no
 * other one, and it can be cancelled.
 */
export function offeredActions(workload: Pick<Workload, "actions" | "recovery" | "waiting_for">): ActionKind[] {
  const kinds = (workload.actions ?? []).filter((kind) => !OF_MEMBER.has(kind) && kind !== "deploy");
  const ordered: ActionKind[] = kinds.filter((kind) => kind !== "decommission");
  if (isOpen(workload)) return ["cancel"];
  if (canResume(workload)) ordered.unshift("resume");
  if (kinds.includes("decommission")) ordered.push("decommission");
  return ordered;
}

/** True while an operation is open: only then the API says what it does or waits for. */
function isOpen(workload: Pick<Workload, "actions" | "waiting_for">): boolean {
  return (workload.actions ?? []).length === 0 && typeof workload.waiting_for === "string";
}

function canResume(workload: Pick<Workload, "recovery">): boolean {
  return workload.recovery === "resumable" || workload.recovery === "manual_intervention";
}

/** The label of an action's button, for example `Repair agent-2`. */
export function actionLabel(action: NextAction): string {
  const label = ACTION_LABELS[action.kind];
  return action.member === undefined ? label : `${label} ${action.member}`;
}

/** True if the API offers the action now, for the workload or for the member that it names. */
export function isOffered(
  action: NextAction,
  workload: Pick<Workload, "actions" | "recovery" | "waiting_for">,
  members: readonly Member[],
): boolean {
  if (action.kind === "resume") return canResume(workload);
  if (action.kind === "cancel") return isOpen(workload);
  const kind: OperationKind = action.kind;
  const member = members.find((candidate) => candidate.name === action.member);
  return (workload.actions ?? []).includes(kind) || (member?.actions ?? []).includes(kind);
}

/** What the box on a workload's page says. */
export interface Why {
  why: string;
  since: string | null;
  until: string | null;
  evidence: string | null;
  source: string | null;
  next: string;
  command: string | null;
  code: string | null;
  from: Waiting["from"] | null;
  /** The next action, if the API offers it. */
  action: NextAction | undefined;
}

/** Why a workload is not well, or what it waits for; `undefined` if it is well and waits for nothing. */
export function whyOf(detail: Pick<WorkloadDetail, "workload" | "members">): Why | undefined {
  const { workload, members } = detail;
  const failed = members.find((member) => member.fault && member.state !== "removed");
  const fault = workload.fault ?? failed?.fault;
  const waiting = workload.waiting ?? failed?.waiting;
  if (!fault && !waiting) return undefined;
  const command = (fault?.command ?? waiting?.command) || null;
  const action = actionOf(command);
  return {
    why: fault?.summary ?? `waiting for ${waiting?.what ?? ""}`,
    since: waiting?.since ?? fault?.evidence_at ?? null,
    until: waiting?.until ?? null,
    evidence: fault?.evidence ?? waiting?.evidence ?? null,
    source: fault?.evidence ? (fault.evidence_source ?? null) : null,
    next: fault?.next ?? waiting?.next ?? "",
    command,
    code: fault?.code ?? null,
    from: waiting?.from ?? null,
    action: action && isOffered(action, workload, members) ? action : undefined,
  };
}

/** The right that an action needs: to go on with an operation, or to end it, is one of its own. */
export function rightFor(kind: ActionKind): Permission {
  return kind === "resume" || kind === "cancel" ? "operations.control" : "workloads.write";
}

//! What can be done with a workload now: only what the API offers, in the words of a button.

import type { Fault, Member, Permission, Waiting, Workload, WorkloadDetail } from "../../api/types";
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

/** Where an action stands among the others, which have 1. */
const ORDER: Partial<Record<ActionKind, number>> = { resume: 0, cancel: 2, decommission: 3 };

/** The actions on the workload as a whole that the API offers now, `resume` first and `decommission` last. */
export function offeredActions(workload: Pick<Workload, "actions">): ActionKind[] {
  const kinds = (workload.actions ?? []).filter((kind) => !OF_MEMBER.has(kind) && kind !== "deploy");
  return kinds.sort((a, b) => (ORDER[a] ?? 1) - (ORDER[b] ?? 1));
}

/** The label of an action's button, for example `Repair agent-2`. */
export function actionLabel(action: NextAction): string {
  const label = ACTION_LABELS[action.kind] ?? action.kind;
  return action.member === undefined ? label : `${label} ${action.member}`;
}

/** True if the API offers the action now, for the workload or for the member that it names. */
export function isOffered(
  action: NextAction,
  workload: Pick<Workload, "actions">,
  members: readonly Pick<Member, "name" | "actions">[],
): boolean {
  const member = members.find((candidate) => candidate.name === action.member);
  const offered: readonly ActionKind[] = [...(workload.actions ?? []), ...(member?.actions ?? [])];
  return offered.includes(action.kind);
}

/** What the box on a workload's page says. */
export interface Why {
  why: string;
  /** How many members have failed besides the one that the box is about. */
  more: number;
  since: string | null;
  until: string | null;
  evidence: string | null;
  source: string | null;
  next: string;
  command: string | null;
  /** Why the API refuses the next action now, if it says so. */
  refused: string | null;
  code: string | null;
  from: Waiting["from"] | null;
  /** The next action, if the API offers it. */
  action: NextAction | undefined;
}

/** Why a workload is not well, or what it waits for; `undefined` if it is well and waits for nothing. */
export function whyOf(detail: Pick<WorkloadDetail, "workload" | "members" | "refused_actions">): Why | undefined {
  const { workload, members } = detail;
  const { fault, waiting, more } = causeOf(workload, members);
  if (!fault && !waiting) return undefined;
  const command = (fault?.command ?? waiting?.command) || null;
  const action = actionOf(command);
  const isAccepted = action !== undefined && isOffered(action, workload, members);
  const refusal = detail.refused_actions?.find((refused) => refused.action === action?.kind);
  return {
    why: fault?.summary ?? `waiting for ${waiting?.what ?? ""}`,
    more,
    since: waiting?.since ?? fault?.evidence_at ?? null,
    until: waiting?.until ?? null,
    evidence: fault?.evidence ?? waiting?.evidence ?? null,
    source: fault?.evidence ? (fault.evidence_source ?? null) : null,
    next: fault?.next ?? waiting?.next ?? "",
    command,
    refused: isAccepted ? null : (refusal?.detail ?? null),
    code: fault?.code ?? null,
    from: waiting?.from ?? null,
    action: isAccepted ? action : undefined,
  };
}

interface Cause {
  fault: Fault | null | undefined;
  waiting: Waiting | null | undefined;
  more: number;
}

/** The fault of the workload itself, else that of its worst member: the API names its first one. */
function causeOf(workload: Workload, members: readonly Member[]): Cause {
  const failed = members.filter((member) => member.fault && member.state !== "removed");
  const named = failed.find((member) => isSame(member.fault, workload.fault));
  const worst = failed.reduce<Member | undefined>(
    (found, member) => (found !== undefined && gravity(found) >= gravity(member) ? found : member),
    named,
  );
  if (worst === undefined || (workload.fault && named === undefined))
    return { fault: workload.fault, waiting: workload.waiting, more: failed.length };
  return { fault: worst.fault, waiting: worst.waiting ?? workload.waiting, more: failed.length - 1 };
}

function isSame(a: Fault | null | undefined, b: Fault | null | undefined): boolean {
  return a?.code === b?.code && a?.summary === b?.summary;
}

function gravity(member: Member): number {
  if (member.state === "failed" || member.health === "failed") return 2;
  return member.health === "degraded" ? 1 : 0;
}

/** The right that an action needs: to continue an operation, or to end it, is one of its own. */
export function rightFor(kind: ActionKind): Permission {
  return kind === "resume" || kind === "cancel" ? "operations.control" : "workloads.write";
}

//! How operations are grouped, filtered and described.

import type { Operation, OperationState } from "../../api/types";
import { oneLine } from "../../text/plain";
import { operationLabel } from "./title";

export type GroupId = "attention" | "open" | "ended";

export const GROUPS: readonly { id: GroupId; label: string }[] = [
  { id: "attention", label: "Needs attention" },
  { id: "open", label: "In progress" },
  { id: "ended", label: "Ended" },
];

const OPEN: readonly OperationState[] = ["queued", "running", "waiting"];

/** True while steps may still run, so that the operation can be cancelled. */
export function isOpen(operation: Pick<Operation, "state">): boolean {
  return OPEN.includes(operation.state);
}

function groupOf(operation: Operation): GroupId {
  if (isOpen(operation)) return "open";
  return operation.state === "needs_attention" ? "attention" : "ended";
}

/** The operations that contain the filter's text, by group, the latest first. */
export function grouped(operations: readonly Operation[], filter: string): Record<GroupId, Operation[]> {
  const groups: Record<GroupId, Operation[]> = { attention: [], open: [], ended: [] };
  const wanted = filter.trim().toLowerCase();
  for (const operation of operations) {
    if (wanted === "" || textOf(operation).includes(wanted)) groups[groupOf(operation)].push(operation);
  }
  Object.values(groups).forEach((group) => group.sort(latestFirst));
  return groups;
}

function textOf(operation: Operation): string {
  const { id, workload_name: workload, requested_by: by, state, kind } = operation;
  return `${operationLabel(operation)} ${kind} ${workload ?? ""} ${by} ${state} ${id}`.toLowerCase();
}

/** The API's times all have one format and zone. */
function latestFirst(a: Operation, b: Operation): number {
  if (a.created_at === b.created_at) return a.id < b.id ? 1 : -1;
  return a.created_at < b.created_at ? 1 : -1;
}

/** What an operation waits for, or why it failed, in one line; empty if neither. */
export function reasonOf(operation: Operation): string {
  const { fault, waiting, reason, superseded_by: later } = operation;
  if (fault && operation.state !== "succeeded") return oneLine(fault.summary);
  if (waiting) return oneLine(`waiting for ${waiting.what}`);
  if (later) return "a later operation took its place";
  return reason ? oneLine(reason) : "";
}

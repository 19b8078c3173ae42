//! What can be done with a node in its state, and why not otherwise. The control plane decides; its dry run is asked before anything runs.

import type { Node } from "../../api/types";

export type NodeAction = "inspect" | "ping" | "enroll" | "reimage" | "reset" | "retire" | "delete";

export interface OfferedAction {
  kind: NodeAction;
  label: string;
  danger: boolean;
  /** Why it is not possible now. */
  reason?: string;
}

export function nodeActions(node: Node): OfferedAction[] {
  const away = node.connectivity === "connected" ? undefined : "The node is not connected.";
  const held = node.allocation ? "A project holds the node: release its allocation first." : undefined;
  const offered: (OfferedAction | undefined)[] = [
    action("inspect", "Inspect", away),
    action("ping", "Ping", away),
    node.state === "retired" ? undefined : action("enroll", "New enrollment command…"),
    node.state === "needs_reimage" ? action("reimage", "Reimage…") : undefined,
    node.state === "registered" || node.state === "retired" ? undefined : danger("reset", "Reset…"),
    node.state === "retired" ? undefined : danger("retire", "Retire…", held),
    node.state === "retired" ? danger("delete", "Delete…") : undefined,
  ];
  return offered.filter((one) => one !== undefined);
}

function action(kind: NodeAction, label: string, reason?: string): OfferedAction {
  return { kind, label, danger: false, ...(reason !== undefined && { reason }) };
}

function danger(kind: NodeAction, label: string, reason?: string): OfferedAction {
  return { ...action(kind, label, reason), danger: true };
}

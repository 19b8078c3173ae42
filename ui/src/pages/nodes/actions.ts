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

/** The action on the node that a line such as `gpuaas node reset gpu-1` advises, if it is possible now. The line may end a sentence. */
export function advisedAction(text: string | null | undefined, node: Node): OfferedAction | undefined {
  const [, verb, name] = /(?:^|: )gpuaas node ([a-z]+) (\S+)$/.exec(text ?? "") ?? [];
  if (name !== node.name) return undefined;
  return nodeActions(node).find((offered) => offered.kind === verb && offered.reason === undefined);
}

function action(kind: NodeAction, label: string, reason?: string): OfferedAction {
  return { kind, label, danger: false, ...(reason !== undefined && { reason }) };
}

function danger(kind: NodeAction, label: string, reason?: string): OfferedAction {
  return { ...action(kind, label, reason), danger: true };
}

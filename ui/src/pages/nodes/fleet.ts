//! The nodes of the fleet: their order, and what a filter finds.

import type { Allocation, Node } from "../../api/types";
import { compareNames } from "../../text/order";
import { type Condition, conditionOf, gpuText } from "./condition";

const ENDED = new Set(["released", "failed"]);

/** True if the allocation no longer holds its node. */
export function hasEnded(allocation: Pick<Allocation, "state">): boolean {
  return ENDED.has(allocation.state);
}

/** The nodes in the order of their names. */
export function ordered(nodes: readonly Node[]): Node[] {
  return [...nodes].sort((a, b) => compareNames(a.name, b.name));
}

export function selected(nodes: readonly Node[], filter: string, condition: Condition | undefined): Node[] {
  const wanted = filter.trim().toLowerCase();
  return nodes.filter(
    (node) =>
      (condition === undefined || conditionOf(node) === condition) && (wanted === "" || textOf(node).includes(wanted)),
  );
}

function textOf(node: Node): string {
  const labels = Object.entries(node.labels).map(([key, value]) => `${key}=${value}`);
  return [
    node.name,
    node.region,
    node.state,
    node.connectivity,
    node.agent_version,
    gpuText(node),
    node.allocation?.project_name,
    node.allocation?.workload,
    node.allocation?.member,
    ...labels,
  ]
    .join("\n")
    .toLowerCase();
}

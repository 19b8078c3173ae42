//! The rows of the fleet: nodes with the allocation that holds each.

import type { Allocation, Node } from "../../api/types";
import { compareNames } from "../../text/order";
import { type Condition, conditionOf, gpuText } from "./condition";

export interface FleetRow {
  node: Node;
  allocation: Allocation | undefined;
}

const ENDED = new Set(["released", "failed"]);

/** True if the allocation no longer holds its node. */
export function hasEnded(allocation: Pick<Allocation, "state">): boolean {
  return ENDED.has(allocation.state);
}

/** Rows in the order of the nodes' names. */
export function rowsOf(nodes: readonly Node[], allocations: readonly Allocation[]): FleetRow[] {
  const holders = new Map<string, Allocation>();
  for (const allocation of allocations) if (!hasEnded(allocation)) holders.set(allocation.node, allocation);
  return [...nodes]
    .sort((a, b) => compareNames(a.name, b.name))
    .map((node) => ({ node, allocation: holders.get(node.id) }));
}

export function selected(rows: readonly FleetRow[], filter: string, condition: Condition | undefined): FleetRow[] {
  const wanted = filter.trim().toLowerCase();
  return rows.filter(
    (row) =>
      (condition === undefined || conditionOf(row.node) === condition) &&
      (wanted === "" || textOf(row).includes(wanted)),
  );
}

function textOf({ node, allocation }: FleetRow): string {
  const labels = Object.entries(node.labels).map(([key, value]) => `${key}=${value}`);
  return [
    node.name,
    node.region,
    node.state,
    node.connectivity,
    node.agent_version,
    gpuText(node),
    allocation?.project_name,
    allocation?.workload,
    ...labels,
  ]
    .join("\n")
    .toLowerCase();
}

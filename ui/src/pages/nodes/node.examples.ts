//! A node and an allocation for tests, which change only what they need.

import type { Allocation, Node } from "../../api/types";

export const AT = "2026-07-01T12:00:00Z";

/** An active node that is connected and that no project holds. */
export function exampleNode(changes: Partial<Node> = {}): Node {
  return {
    id: "1",
    name: "gpu-1",
    labels: {},
    state: "active",
    connectivity: "connected",
    connectivity_since: AT,
    created_at: AT,
    ...changes,
  };
}

/** The allocation of that node to the project `ml`, without a workload. */
export function exampleAllocation(changes: Partial<Allocation> = {}): Allocation {
  return {
    id: "a",
    node: "1",
    node_name: "gpu-1",
    project: "p",
    project_name: "ml",
    state: "active",
    created_at: AT,
    ...changes,
  };
}

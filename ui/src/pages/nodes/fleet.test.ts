import { expect, test } from "vitest";

import type { Allocation, Node } from "../../api/types";
import { rowsOf, selected } from "./fleet";

const at = "2026-07-01T12:00:00Z";

function node(id: string, name: string, changes: Partial<Node> = {}): Node {
  return {
    id,
    name,
    labels: {},
    state: "active",
    connectivity: "connected",
    connectivity_since: at,
    created_at: at,
    ...changes,
  };
}

function allocation(id: string, of: string, state: Allocation["state"], workload?: string): Allocation {
  return {
    id,
    node: of,
    node_name: of,
    project: "p",
    project_name: "ml",
    state,
    created_at: at,
    ...(workload && { workload }),
  };
}

test("nodes are ordered as people count, each with the allocation that holds it now", () => {
  const rows = rowsOf(
    [node("b", "gpu-10"), node("a", "gpu-2")],
    [allocation("1", "a", "released"), allocation("2", "a", "active", "train"), allocation("3", "b", "released")],
  );
  expect(rows.map((row) => [row.node.name, row.allocation?.id])).toEqual([
    ["gpu-2", "2"],
    ["gpu-10", undefined],
  ]);
});

test("a filter finds labels, projects and workloads", () => {
  const rows = rowsOf(
    [node("a", "gpu-1", { labels: { rack: "b12" } }), node("b", "gpu-2", { connectivity: "stale" })],
    [allocation("2", "b", "active", "train")],
  );
  const names = (filter: string) => selected(rows, filter, undefined).map((row) => row.node.name);
  expect(names("rack=B12")).toEqual(["gpu-1"]);
  expect(names("train")).toEqual(["gpu-2"]);
  expect(selected(rows, "", "attention").map((row) => row.node.name)).toEqual(["gpu-2"]);
});

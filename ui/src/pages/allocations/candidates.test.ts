import { expect, test } from "vitest";

import type { Allocation, Node } from "../../api/types";
import { candidates } from "./candidates";

const at = "2026-07-01T12:00:00Z";

function row(name: string, changes: Partial<Node> = {}, allocation?: Allocation) {
  const node: Node = {
    id: name,
    name,
    labels: {},
    state: "active",
    connectivity: "connected",
    connectivity_since: at,
    created_at: at,
    ...changes,
  };
  return { node, allocation };
}

test("usable nodes come first, and the others say why not", () => {
  const held: Allocation = {
    id: "a",
    node: "gpu-1",
    node_name: "gpu-1",
    project: "p",
    project_name: "ml",
    state: "active",
    created_at: at,
  };
  const rows = [
    row("gpu-1", {}, held),
    row("gpu-2", { state: "needs_reimage" }),
    row("gpu-3", { state: "registered", connectivity: "never" }),
    row("gpu-4"),
    row("gpu-5", { connectivity: "stale" }),
  ];
  expect(candidates(rows, "").map(({ node, reason }) => [node.name, reason])).toEqual([
    ["gpu-4", undefined],
    ["gpu-1", "held by ml"],
    ["gpu-2", "needs a reimage"],
    ["gpu-3", "not enrolled"],
    ["gpu-5", "stale"],
  ]);
});

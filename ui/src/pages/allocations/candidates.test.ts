import { expect, test } from "vitest";

import { exampleAllocation, exampleNode } from "../nodes/node.examples";
import { candidates } from "./candidates";

test("usable nodes come first, and the others say why not", () => {
  const nodes = [
    exampleNode({ name: "gpu-1", allocation: exampleAllocation() }),
    exampleNode({ name: "gpu-2", state: "needs_reimage" }),
    exampleNode({ name: "gpu-3", state: "registered", connectivity: "never" }),
    exampleNode({ name: "gpu-4" }),
    exampleNode({ name: "gpu-5", connectivity: "stale" }),
  ];
  expect(candidates(nodes, "").map(({ node, reason }) => [node.name, reason])).toEqual([
    ["gpu-4", undefined],
    ["gpu-1", "held by ml"],
    ["gpu-2", "needs a reimage"],
    ["gpu-3", "not enrolled"],
    ["gpu-5", "stale"],
  ]);
});

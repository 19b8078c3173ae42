import { expect, test } from "vitest";

import { ordered, selected } from "./fleet";
import { exampleAllocation, exampleNode } from "./node.examples";

test("nodes are ordered as people count", () => {
  const nodes = [exampleNode({ name: "gpu-10" }), exampleNode({ name: "gpu-2" })];
  expect(ordered(nodes).map((node) => node.name)).toEqual(["gpu-2", "gpu-10"]);
});

test("a filter finds labels, projects, workloads and members", () => {
  const allocation = exampleAllocation({ workload: "train", member: "agent-2", component: "agent" });
  const nodes = [
    exampleNode({ name: "gpu-1", labels: { rack: "b12" } }),
    exampleNode({ name: "gpu-2", connectivity: "stale", allocation }),
  ];
  const names = (filter: string) => selected(nodes, filter, undefined).map((node) => node.name);
  expect(names("rack=B12")).toEqual(["gpu-1"]);
  for (const filter of ["train", "ml", "agent"]) expect(names(filter), filter).toEqual(["gpu-2"]);
  expect(selected(nodes, "", "attention").map((node) => node.name)).toEqual(["gpu-2"]);
});

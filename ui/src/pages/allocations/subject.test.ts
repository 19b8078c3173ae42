import { expect, test } from "vitest";

import type { Allocation } from "../../api/types";
import { allocationFacts } from "./subject";

const allocation: Allocation = {
  id: "a",
  node: "1",
  node_name: "gpu-1",
  project: "p",
  state: "active",
  created_at: "2026-07-01T12:00:00Z",
};

test("an allocation is described by its state and by the workload that uses it", () => {
  expect(allocationFacts(allocation)).toEqual({ "The allocation": "active", "The workload that uses it": "none" });
  expect(allocationFacts({ ...allocation, state: "release_failed", workload: "train" })).toEqual({
    "The allocation": "held after a failed release",
    "The workload that uses it": "train",
  });
});

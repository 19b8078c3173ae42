import { describe, expect, it } from "vitest";

import type { Workload } from "../../api/types";
import { bySection, matches, sectionOf } from "./sections";

function workload(changes: Partial<Workload>): Workload {
  return {
    id: "1",
    name: "train",
    project: "p",
    app: "rke2",
    version: "v1",
    lifecycle: "running",
    health: "healthy",
    recovery: "none",
    phase: "ready",
    completed: 1,
    total: 1,
    generation: 1,
    observed_generation: 1,
    stand_in: false,
    created_at: "2026-07-01T12:00:00Z",
    ...changes,
  };
}

describe("sectionOf", () => {
  it("takes the API's section", () => expect(sectionOf(workload({ section: "stopped" }))).toBe("stopped"));

  it("judges by lifecycle and health without one", () => {
    expect(sectionOf(workload({}))).toBe("active");
    expect(sectionOf(workload({ health: "degraded" }))).toBe("needs_attention");
    expect(sectionOf(workload({ lifecycle: "stopped" }))).toBe("stopped");
    expect(sectionOf(workload({ lifecycle: "decommissioned" }))).toBe("history");
    expect(sectionOf(workload({ lifecycle: "failed", health: "failed" }))).toBe("needs_attention");
  });
});

it("what failed comes first where somebody has to look", () => {
  const list = [
    workload({ name: "a", section: "needs_attention", health: "progressing" }),
    workload({ name: "b", section: "needs_attention", health: "degraded" }),
    workload({ name: "c", section: "needs_attention", health: "failed" }),
  ];
  expect(bySection(list, "").needs_attention.map(({ name }) => name)).toEqual(["c", "b", "a"]);
});

it("filters by every word, in any case", () => {
  expect(matches(workload({ endpoint: "https://10.4.0.7:6443" }), "TRAIN 10.4")).toBe(true);
  expect(matches(workload({}), "train slurm")).toBe(false);
  expect(matches(workload({}), "")).toBe(true);
});

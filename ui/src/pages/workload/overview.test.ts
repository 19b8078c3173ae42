import { expect, it } from "vitest";

import type { Node, OperationDetail, Step } from "../../api/types";
import { gpusOf, notesOf, sharesOf } from "./overview";

it("counts a machine's GPUs by the short name of their model", () => {
  const gpu = { bus: "0000:3b:00.0", pci_id: "10de:2335", model: "NVIDIA H200 SXM" };
  const node = { facts: { machine: { gpus: [gpu, gpu] } } } as unknown as Node;
  expect(gpusOf(node)).toBe("2×H200");
  expect(gpusOf(undefined)).toBeUndefined();
});

it("puts failures first and leaves out what succeeded", () => {
  const steps: Step[] = [
    { key: "a/start", phase: "p", state: "running", attempts: 1, detail: "kubelet is starting" },
    { key: "b/start", phase: "p", state: "succeeded", attempts: 1, detail: "done" },
    {
      key: "c/start",
      phase: "p",
      state: "failed",
      attempts: 4,
      fault: { code: "x", summary: "s", next: "n", evidence: "\u001b[31mboom\u001b[0m" },
    },
  ];
  expect(notesOf(steps).map(({ label, text }) => `${label}: ${text}`)).toEqual([
    "c start: boom",
    "a start: kubelet is starting",
  ]);
});

it("the platform works while no step waits for a node or the cluster", () => {
  const at = (seconds: number): string => new Date(Date.parse("2026-07-01T12:00:00Z") + seconds * 1_000).toISOString();
  const step = (awaits: Step["awaits"], from: number | null, to: number | null): Step => ({
    key: `${awaits}/${from}`,
    phase: "p",
    state: "succeeded",
    attempts: 1,
    ...(awaits && { awaits }),
    started_at: from === null ? null : at(from),
    ended_at: to === null ? null : at(to),
  });
  const detail = (ended: number | null, steps: Step[]): OperationDetail => ({
    operation: {
      id: "o",
      workload: "w",
      kind: "deploy",
      state: ended === null ? "running" : "succeeded",
      requested_by: "ann",
      created_at: at(0),
      ended_at: ended === null ? null : at(ended),
    },
    steps,
  });
  const now = Date.parse(at(60));
  const steps = [step("platform", 0, 2), step("node", 3, 9), step("node", 2, 5), step("cluster", 10, 12)];
  expect(sharesOf(detail(15, steps), now)).toEqual({ whole: 15_000, platform: 6_000 });
  // One that runs takes until now, one that has not begun nothing, and what ended late no longer than the operation.
  expect(sharesOf(detail(null, [step("node", 50, null), step("node", null, null)]), now)).toEqual({
    whole: 60_000,
    platform: 50_000,
  });
  expect(sharesOf(detail(15, [step("node", -2, 90)]), now)).toEqual({ whole: 15_000, platform: 0 });
});

import { expect, it } from "vitest";

import type { Node, Step } from "../../api/types";
import { gpusOf, notesOf } from "./overview";

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

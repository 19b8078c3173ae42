import { expect, test } from "vitest";

import type { Node, PreflightFinding } from "../../api/types";
import { conditionOf, countByCondition, findingsNote, gpuText } from "./condition";
import { exampleNode as node } from "./node.examples";

function finding(check: string, severity: PreflightFinding["severity"]): PreflightFinding {
  return { check, severity, detail: "", fix: "" };
}

test("a node has one condition, and the worst reason decides", () => {
  expect(conditionOf(node())).toBe("well");
  expect(conditionOf(node({ connectivity: "unreachable", state: "needs_reimage" }))).toBe("unreachable");
  expect(conditionOf(node({ connectivity: "stale" }))).toBe("attention");
  expect(conditionOf(node({ preflight: { passed: 1, findings: [finding("swap_on", "blocking")] } }))).toBe("attention");
  expect(conditionOf(node({ preflight: { passed: 1, findings: [finding("swap_on", "warning")] } }))).toBe("well");
  expect(conditionOf(node({ connectivity: "never", state: "registered" }))).toBe("unused");
  expect(conditionOf(node({ connectivity: "unreachable", state: "retired" }))).toBe("unused");
});

test("blocking findings come before warnings", () => {
  const findings = [finding("a", "warning"), finding("leftover", "blocking")];
  const found = node({ preflight: { passed: 3, findings } });
  expect(findingsNote(found)).toEqual({ text: "1 blocking", tone: "failed" });
  expect(findingsNote(node())).toEqual({ text: "Not inspected", tone: "muted" });
});

test("equal GPUs are counted together, and a missing report is no zero", () => {
  const gpu = (model: string) => ({ bus: "0000:3b:00.0", pci_id: "10de:2335", model });
  const facts = (gpus: ReturnType<typeof gpu>[]) => ({ machine: { gpus } }) as unknown as NonNullable<Node["facts"]>;
  expect(gpuText(node({ facts: facts([gpu("H200"), gpu("H200"), gpu("L4")]) }))).toBe("2×H200, 1×L4");
  expect(gpuText(node({ facts: facts([]) }))).toBe("no GPU");
  expect(gpuText(node())).toBeUndefined();
});

test("every node is counted once", () => {
  expect(countByCondition([node(), node({ connectivity: "stale" })])).toEqual({
    unreachable: 0,
    attention: 1,
    well: 1,
    unused: 0,
  });
});

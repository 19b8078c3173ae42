import { expect, it } from "vitest";

import { failureOf, OUTCOME_MAX, outcomeText } from "./outcome";

it("finds the failure of a node, without its escape sequences", () => {
  const outcome = { outcome: "failed", failure: { code: "exit_status", message: "\u001b[31mexited with 1" } };
  expect(failureOf(outcome)).toEqual({ code: "exit_status", message: "exited with 1" });
  expect(failureOf({ outcome: "succeeded", result: {} })).toBeUndefined();
  expect(failureOf("failed")).toBeUndefined();
});

it("shows the result as JSON of bounded length", () => {
  expect(outcomeText({ outcome: "succeeded", result: { pid: 1 } })).toBe('{\n  "pid": 1\n}');
  expect(outcomeText(null)).toBe("");
  expect(outcomeText({ result: "x".repeat(2 * OUTCOME_MAX) }).length).toBe(OUTCOME_MAX + 1);
});

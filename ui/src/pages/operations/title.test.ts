import { expect, it } from "vitest";

import type { Operation } from "../../api/types";
import { operationLabel, operationTitle } from "./title";

/** The API's document has no shape for parameters: each app has its own. */
function asked(kind: Operation["kind"], parameters: Record<string, unknown>): Parameters<typeof operationTitle>[0] {
  return { kind, parameters: parameters as Record<string, never>, workload_name: "train" };
}

it("names the member that it is about", () => {
  const drain = asked("drain_member", { member: "agent-2", force: true });
  expect([operationLabel(drain), operationTitle(drain)]).toEqual(["Drain agent-2", "Drain agent-2 of train"]);
  expect(operationTitle(asked("repair", { scope: "member", member: "agent-1" }))).toBe("Repair agent-1 of train");
});

it("is about the workload otherwise", () => {
  expect(operationTitle(asked("deploy", {}))).toBe("Deploy train");
  expect(operationTitle(asked("add_member", {}))).toBe("Add member to train");
  expect(operationTitle({ kind: "stop" })).toBe("Stop");
});

import { expect, test } from "vitest";

import type { Node } from "../../api/types";
import { absolute } from "../../text/time";
import { AT as at, exampleAllocation, exampleNode } from "./node.examples";
import { nodeFacts } from "./subject";

const node = exampleNode();

function different(changes: Partial<Node>): Record<string, string> {
  const before = nodeFacts(node);
  return Object.fromEntries(
    Object.entries(nodeFacts({ ...node, ...changes })).filter(([key, is]) => before[key] !== is),
  );
}

test("every fact of a node that a person decides by is one, in words", () => {
  expect(different({ state: "needs_reimage" })).toEqual({ "The node": "waiting for a reimage" });
  expect(different({ connectivity: "unreachable" })).toEqual({ "Its agent": "unreachable" });
  expect(different({ machine_id: "ab12" })).toEqual({ "Its machine": "the one with the id ab12" });
  expect(different({ agent_version: "0.2.0" })).toEqual({ "The version of its agent": "0.2.0" });
  expect(different({ inspected_at: at })).toEqual({
    "Its latest inspection": `the one of ${absolute(Date.parse(at))}`,
  });
  expect(different({ allocation: exampleAllocation() })).toEqual({ "The project that holds it": "ml" });
  const agentProblem = { code: "ledger_damaged", detail: "the ledger\u001b[31m is damaged", next: "", since: at };
  expect(different({ agent_problem: agentProblem })).toEqual({ "The problem of its agent": "the ledger is damaged" });
});

test("a newer enrollment command of a node that awaits its machine is a difference", () => {
  const waiting = { what: "its machine to enroll", from: "operator" as const, since: at, until: at, next: "run it" };
  expect(nodeFacts({ ...node, state: "registered", waiting })["Its enrollment command"]).toBe(
    `valid until ${absolute(Date.parse(at))}`,
  );
  // What an active node waits for is no command.
  expect(nodeFacts({ ...node, waiting })["Its enrollment command"]).toBe("not valid");
});

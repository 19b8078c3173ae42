import { expect, test } from "vitest";

import type { Node } from "../../api/types";
import { arrivalOf, hasArrived } from "./arrival";
import { exampleNode } from "./node.examples";

const registered = exampleNode({ state: "registered", connectivity: "never" });

const states = (node: Node) => arrivalOf(node).map((step) => step.state);

test("a machine arrives step by step", () => {
  expect(states(registered)).toEqual(["done", "current", "pending", "pending"]);
  expect(states({ ...registered, state: "enrolled" })).toEqual(["done", "done", "current", "pending"]);
  const connected: Node = { ...registered, state: "active", connectivity: "connected" };
  expect(states(connected)).toEqual(["done", "done", "done", "current"]);
  expect(hasArrived(arrivalOf({ ...connected, preflight: { passed: 41, findings: [] } }))).toBe(true);
});

test("a machine that lost its connection has not arrived", () => {
  const lost: Node = { ...registered, state: "active", connectivity: "stale", preflight: { passed: 1, findings: [] } };
  expect(hasArrived(arrivalOf(lost))).toBe(false);
});

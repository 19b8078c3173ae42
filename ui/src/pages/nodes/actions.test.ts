import { expect, test } from "vitest";

import type { Allocation, Node } from "../../api/types";
import { nodeActions } from "./actions";

const at = "2026-07-01T12:00:00Z";
const node: Node = {
  id: "1",
  name: "gpu-1",
  labels: {},
  state: "active",
  connectivity: "connected",
  connectivity_since: at,
  created_at: at,
};

const kinds = (of: Node) => nodeActions(of).map((action) => action.kind);
const reason = (of: Node, kind: string) => nodeActions(of).find((action) => action.kind === kind)?.reason;

test("a state decides what is offered", () => {
  expect(kinds(node)).toEqual(["inspect", "ping", "enroll", "reset", "retire"]);
  expect(kinds({ ...node, state: "needs_reimage" })).toContain("reimage");
  expect(kinds({ ...node, state: "retired" })).toEqual(["inspect", "ping", "delete"]);
  expect(kinds({ ...node, state: "registered" })).not.toContain("reset");
});

test("what is not possible says why", () => {
  expect(reason({ ...node, connectivity: "stale" }, "inspect")).toMatch("not connected");
  const allocation: Allocation = {
    id: "a",
    node: "1",
    node_name: "gpu-1",
    project: "p",
    state: "active",
    created_at: at,
  };
  expect(reason({ ...node, allocation }, "retire")).toMatch("release its allocation");
  expect(reason(node, "retire")).toBeUndefined();
});

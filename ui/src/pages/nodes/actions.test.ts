import { expect, test } from "vitest";

import type { Node } from "../../api/types";
import { advisedAction, nodeActions } from "./actions";
import { exampleAllocation, exampleNode } from "./node.examples";

const node = exampleNode();

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
  expect(reason({ ...node, allocation: exampleAllocation() }, "retire")).toMatch("release its allocation");
  expect(reason(node, "retire")).toBeUndefined();
});

test("an advised command is the action that it names, if that is possible", () => {
  const advised = (text: string | null, of = node) => advisedAction(text, of)?.kind;
  expect(advised("gpuaas node reset gpu-1")).toBe("reset");
  expect(advised("enroll it again with the command that this prints: gpuaas node enroll gpu-1")).toBe("enroll");
  expect(advised("gpuaas node reset gpu-2")).toBeUndefined();
  expect(advised("gpuaas node show gpu-1")).toBeUndefined();
  expect(advised("gpuaas node reset gpu-1", { ...node, state: "registered" })).toBeUndefined();
  expect(advised("gpuaas node retire gpu-1", { ...node, allocation: exampleAllocation() })).toBeUndefined();
  expect(advised(null)).toBeUndefined();
});

import { expect, test } from "vitest";

import type { Event } from "../../api/types";
import { exampleAllocation, exampleNode } from "./node.examples";
import { fleet, oneNode } from "./source";

const node = exampleNode({ id: "n-1", allocation: exampleAllocation({ id: "a-1", member: "agent-1" }) });

function event(subject_kind: string, subject_id: string, data: unknown = {}): Event {
  return { stream: "", sequence: 1, at: "", kind: "task.changed", subject_kind, subject_id, data };
}

// Without a session nothing is permitted, as for a tenant, whose stream has no events of nodes.
test("the page of a tenant's node follows what the project's stream says about it", () => {
  const source = oneNode("gpu-1");
  expect(source.scope).toEqual(["project"]);
  for (const [touching, expected] of [
    [event("member", "m-1", { workload: "w-1", member: "agent-1", health: "degraded" }), true],
    [event("member", "m-2", { workload: "w-1", member: "agent-2", health: "degraded" }), false],
    [event("allocation", "a-1"), true],
    [event("allocation", "a-2", { node: "gpu-1" }), true],
    [event("allocation", "a-3", { node: "gpu-2" }), false],
    [event("task", "t-1", { node: "gpu-1" }), true],
    [event("task", "t-2", { node: "gpu-2" }), false],
    [event("step", "s-1", { workload: "w-1" }), false],
  ] as const)
    expect(source.on(touching, node), touching.subject_id).toBe(expected);
});

test("the first member on a node is noticed, and members are ignored while no project holds it", () => {
  const { on } = oneNode("gpu-1");
  const member = event("member", "m-1", { member: "agent-1" });
  const allocation = exampleAllocation({ id: "a-1", member: null });
  expect(on(member, undefined)).toBe(true);
  expect(on(member, exampleNode({ allocation }))).toBe(true);
  expect(on(member, exampleNode({ allocation: null }))).toBe(false);
});

test("the list of nodes reads the nodes that events name, and all after an operation", () => {
  const { on, every, pause } = fleet();
  expect(on(event("node", "n-1"), [])).toBe("n-1");
  expect(on({ ...event("operation", "o-1"), kind: "operation.ended" }, [])).toBe(true);
  expect(on({ ...event("member", "m-1"), kind: "member.changed" }, [])).toBe(false);
  expect(pause, "many operations are few readings").toBe(2_000);
  expect(every, "other projects' members change without an event").toBe(60_000);
});

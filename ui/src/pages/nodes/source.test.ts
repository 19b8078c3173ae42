import { expect, test } from "vitest";

import type { Event, Node } from "../../api/types";
import { oneNode } from "./source";

const node = { id: "n-1", name: "gpu-1", allocation: { id: "a-1" } } as Node;

function event(subject_kind: string, subject_id: string, data: unknown = {}): Event {
  return { stream: "", sequence: 1, at: "", kind: "task.changed", subject_kind, subject_id, data };
}

// Without a session nothing is permitted, as for a tenant, whose stream has no events of nodes.
test("the page of a tenant's node follows what the project's stream says about it", () => {
  const source = oneNode("gpu-1");
  expect(source.scope).toEqual(["project"]);
  for (const [touching, expected] of [
    [event("member", "m-1", { workload: "w-1", health: "degraded" }), true],
    [event("allocation", "a-1"), true],
    [event("allocation", "a-2"), false],
    [event("task", "t-1", { node: "gpu-1" }), true],
    [event("task", "t-2", { node: "gpu-2" }), false],
    [event("step", "s-1", { workload: "w-1" }), false],
  ] as const)
    expect(source.on(touching, node), touching.subject_id).toBe(expected);
});

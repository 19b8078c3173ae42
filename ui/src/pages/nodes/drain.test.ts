import { expect, test } from "vitest";

import type { Member, Workload, WorkloadDetail } from "../../api/types";
import { drainOf } from "./drain";
import { exampleAllocation, exampleNode } from "./node.examples";

const node = exampleNode({ allocation: exampleAllocation({ workload: "train", member: "agent-2" }) });

function detail(member: Partial<Member>, actions: Workload["actions"] = ["stop"]): WorkloadDetail {
  const members = [{ name: "agent-2", state: "ready", actions: [], ...member }];
  return { workload: { name: "train", actions }, members } as unknown as WorkloadDetail;
}

test("a member that its workload lets drain can be drained", () => {
  expect(drainOf(node, detail({ actions: ["drain_member"] }))).toEqual({ member: "agent-2", reason: undefined });
});

test("a drain that is not possible says why", () => {
  const reason = (of: WorkloadDetail | undefined) => drainOf(node, of).reason;
  expect(drainOf(exampleNode(), undefined).reason).toMatch("No workload");
  expect(drainOf(exampleNode({ allocation: exampleAllocation() }), undefined).reason).toMatch("No workload");
  expect(reason(undefined)).toMatch("not read yet");
  expect(reason(detail({ state: "removed" }))).toMatch("no longer has the member agent-2");
  expect(reason(detail({ state: "drained" }))).toMatch("agent-2 is drained");
  expect(reason(detail({}, ["cancel"]))).toMatch("in progress");
  expect(reason(detail({ state: "joining" }))).toMatch("while it is joining");
});

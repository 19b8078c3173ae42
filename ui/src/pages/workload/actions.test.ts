import { expect, it } from "vitest";

import type { Fault, Member, Workload } from "../../api/types";
import { actionLabel, offeredActions, rightFor, whyOf } from "./actions";

const FAULT: Fault = {
  code: "x",
  summary: "agent-2 failed to join",
  next: "repair it",
  command: "gpuaas workload repair train --scope member --member agent-2",
};

function detail(changes: Partial<Workload>, members: Member[] = []): Parameters<typeof whyOf>[0] {
  const workload = { recovery: "none", actions: [], ...changes } as unknown as Workload;
  return { workload, members };
}

it("offers what the API offers: members' actions elsewhere, resume first, decommission last", () => {
  const actions: Workload["actions"] = ["decommission", "stop", "drain_member", "add_member"];
  expect(offeredActions({ actions, recovery: "resumable" })).toEqual(["resume", "stop", "add_member", "decommission"]);
  expect(offeredActions({ actions: [], recovery: "none" })).toEqual([]);
});

it("an open operation can be cancelled, and nothing else is offered", () => {
  const open = { actions: [], recovery: "resumable" as const, waiting_for: "agent-1 to become ready" };
  expect(offeredActions(open)).toEqual(["cancel"]);
});

it("a workload that is well has no reason", () => expect(whyOf(detail({}))).toBeUndefined());

it("the next action is a button only if the API offers it", () => {
  expect(whyOf(detail({ fault: FAULT, actions: ["repair"] }))?.action).toEqual({
    kind: "repair",
    member: "agent-2",
    scope: "member",
  });
  expect(whyOf(detail({ fault: FAULT }))?.action).toBeUndefined();
});

it("a failed member explains a workload without a fault of its own", () => {
  const member: Member = {
    name: "agent-2",
    node_name: "gpu-9",
    state: "failed",
    health: "failed",
    fault: FAULT,
    actions: ["repair"],
  };
  const why = whyOf(detail({}, [member]));
  expect(why?.why).toBe("agent-2 failed to join");
  expect(why?.action && actionLabel(why.action)).toBe("Repair agent-2");
});

it("says what is awaited, from whom and since when", () => {
  const why = whyOf(
    detail({ waiting: { what: "the kubelet of agent-1", from: "node", since: "2026-07-01T12:00:00Z", next: "wait" } }),
  );
  expect([why?.why, why?.from, why?.since]).toEqual([
    "waiting for the kubelet of agent-1",
    "node",
    "2026-07-01T12:00:00Z",
  ]);
});

it("to go on with an operation is another right than to change a workload", () => {
  expect((["resume", "cancel", "repair", "decommission"] as const).map(rightFor)).toEqual([
    "operations.control",
    "operations.control",
    "workloads.write",
    "workloads.write",
  ]);
});

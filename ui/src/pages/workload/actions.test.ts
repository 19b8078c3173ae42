import { expect, it } from "vitest";

import type { Fault, Member, Workload } from "../../api/types";
import { actionLabel, isOffered, offeredActions, rightFor, whyOf } from "./actions";

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

function failed(name: string, health: Member["health"], summary = `${name} failed`): Member {
  const fault = { code: "x", summary, next: "repair it" };
  return { name, node_name: "gpu-9", state: "ready", health, fault, actions: [] };
}

it("offers what the API offers: members' actions elsewhere, resume first, decommission last", () => {
  const actions: Workload["actions"] = ["decommission", "cancel", "stop", "drain_member", "add_member", "resume"];
  expect(offeredActions({ actions })).toEqual(["resume", "stop", "add_member", "cancel", "decommission"]);
  expect(offeredActions({ actions: [] })).toEqual([]);
});

it("guesses nothing from what the workload waits for or could be recovered by", () => {
  const waiting = { actions: [], recovery: "resumable" as const, waiting_for: "agent-1 to become ready" };
  expect(offeredActions(waiting)).toEqual([]);
  expect([isOffered({ kind: "cancel" }, waiting, []), isOffered({ kind: "resume" }, waiting, [])]).toEqual([
    false,
    false,
  ]);
  expect(isOffered({ kind: "resume" }, { actions: ["resume"] }, [])).toBe(true);
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

it("of several failed members the worst is shown, and the others are counted", () => {
  const members = [failed("agent-1", "degraded"), failed("agent-2", "failed"), failed("agent-3", "failed")];
  // The API names the first of them.
  const why = whyOf(detail({ fault: members[0]?.fault ?? null }, members));
  expect([why?.why, why?.more]).toEqual(["agent-2 failed", 2]);
  const last = whyOf(detail({ fault: members[2]?.fault ?? null }, members));
  expect(last?.why, "of two that are equally bad, the one that the API names").toBe("agent-3 failed");
});

it("a fault of the workload itself comes before those of its members", () => {
  const why = whyOf(detail({ fault: FAULT }, [failed("agent-1", "failed")]));
  expect([why?.why, why?.more]).toEqual([FAULT.summary, 1]);
});

it("a removed member explains nothing", () => {
  expect(whyOf(detail({}, [{ ...failed("agent-1", "none"), state: "removed" }]))).toBeUndefined();
});

it("a next action that the API refuses now has its reason instead of a button", () => {
  const command = "gpuaas workload resume train";
  const refusal = {
    action: "resume",
    code: "state_conflict",
    detail: "reconcile is still open",
    next: "wait",
  } as const;
  const refused = { ...detail({ fault: { ...FAULT, command }, actions: ["cancel"] }), refused_actions: [refusal] };
  expect([whyOf(refused)?.action, whyOf(refused)?.refused]).toEqual([undefined, "reconcile is still open"]);
  const accepted = detail({ fault: { ...FAULT, command }, actions: ["resume"] });
  expect([whyOf(accepted)?.action, whyOf(accepted)?.refused]).toEqual([{ kind: "resume" }, null]);
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

it("to continue an operation is another right than to change a workload", () => {
  expect((["resume", "cancel", "repair", "decommission"] as const).map(rightFor)).toEqual([
    "operations.control",
    "operations.control",
    "workloads.write",
    "workloads.write",
  ]);
});

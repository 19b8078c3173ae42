import { expect, it } from "vitest";

import type { Member } from "../../api/types";
import { groupCounts, memberActions, shownMembers, whyOfMember } from "./members";

const member = (name: string, changes: Partial<Member> = {}): Member => ({
  name,
  node_name: "gpu-1",
  state: "ready",
  health: "healthy",
  ...changes,
});

it("leaves out removed members and those without the filter's text", () => {
  const members = [member("server-1"), member("agent-1"), member("agent-2", { state: "removed", health: "none" })];
  expect(shownMembers(members, "", false).map(({ name }) => name)).toEqual(["server-1", "agent-1"]);
  expect(shownMembers(members, "AGENT", true).map(({ name }) => name)).toEqual(["agent-1", "agent-2"]);
  expect(groupCounts(members)).toBe("1 server, 1 agent");
});

it("says why a member is not well: its fault, its controller's message, its wait", () => {
  const fault = { code: "x", summary: "kubelet\nfailed", next: "" };
  const waiting = { what: "the kubelet", from: "node", since: "2026-07-01T12:00:00.000Z", next: "" } as const;
  const reported = {
    by: "controller",
    health: "degraded",
    message: "disk is slow",
    since: "2026-07-01T12:00:00.000Z",
  } as const;
  expect(whyOfMember(member("a", { fault, reported, waiting }))).toBe("kubelet failed");
  expect(whyOfMember(member("a", { reported, waiting }))).toBe("disk is slow");
  expect(whyOfMember(member("a", { waiting }))).toBe("waiting for the kubelet");
  expect(whyOfMember(member("a"))).toBe("");
});

it("lists what takes a member away last", () => {
  expect(memberActions({ actions: ["remove_member", "drain_member", "repair"] })).toEqual([
    "drain_member",
    "repair",
    "remove_member",
  ]);
  expect(memberActions({})).toEqual([]);
});

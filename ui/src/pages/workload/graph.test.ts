import { describe, expect, it } from "vitest";

import type { Member } from "../../api/types";
import { BOX_WIDTH, graphOf, groupsOf } from "./graph";

function member(name: string, health: Member["health"] = "healthy", state: Member["state"] = "ready"): Member {
  return { name, node_name: "gpu-1", state, health };
}

it("groups by the app's own words, in the API's order, without removed members", () => {
  const groups = groupsOf([
    member("controller-1"),
    member("worker-1"),
    member("worker-2"),
    member("worker-3", "none", "removed"),
  ]);
  expect(groups.map((group) => group.map(({ name }) => name))).toEqual([["controller-1"], ["worker-1", "worker-2"]]);
});

describe("graphOf", () => {
  it("links the others to the first group, and marks links to members that are not well", () => {
    const graph = graphOf([member("server-1"), member("agent-1"), member("agent-2", "failed", "failed")], 308);
    expect(graph.boxes).toHaveLength(3);
    expect(graph.links.map(({ name, isWell }) => [name, isWell])).toEqual([
      ["agent-1", true],
      ["agent-2", false],
    ]);
    for (const box of graph.boxes) expect(box.x + BOX_WIDTH).toBeLessThanOrEqual(graph.width);
  });

  it("draws a member without others", () => {
    const graph = graphOf([member("server-1")], 308);
    expect([graph.links, graph.trunk, graph.height]).toEqual([[], "", 52]);
  });

  it("counts the well members of a large group, and draws the others", () => {
    const agents = Array.from({ length: 100 }, (_, index) =>
      member(`agent-${index + 1}`, index === 98 ? "failed" : "healthy"),
    );
    const graph = graphOf([member("server-1"), ...agents], 308);
    expect(graph.more).toBe(88);
    expect(graph.boxes.map(({ member: { name } }) => name)).toContain("agent-99");
  });

  it("draws nothing of nothing", () => expect(graphOf([], 308).height).toBe(0));
});

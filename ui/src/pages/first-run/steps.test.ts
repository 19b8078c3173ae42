import { expect, test } from "vitest";

import { firstSteps, type Rights } from "./steps";

const all: Rights = { projects: true, artifacts: true, nodes: true, allocations: true, workloads: true };
const nothing = { projects: 0, nodes: 0, releases: 0, allocations: 0 };
const states = (...args: Parameters<typeof firstSteps>) => firstSteps(...args).map((step) => step.state);

test("an empty platform begins with a project", () => {
  expect(states(nothing, all)).toEqual(["next", "later", "later", "later", "later"]);
});

test("steps may be done in another order", () => {
  expect(states({ ...nothing, projects: 1, nodes: 3 }, all)).toEqual(["done", "next", "done", "later", "later"]);
});

test("with an allocation and a release a cluster can be deployed", () => {
  expect(states({ projects: 1, nodes: 1, releases: 4, allocations: 1 }, all).at(-1)).toBe("next");
});

test("a tenant who cannot see the fleet has a machine when an allocation exists", () => {
  const tenant: Rights = { projects: false, artifacts: false, nodes: false, allocations: false, workloads: true };
  const steps = firstSteps({ projects: 1, nodes: undefined, releases: 2, allocations: 0 }, tenant);
  expect(steps.find((step) => step.state === "next")).toMatchObject({ key: "node", mine: false });
  expect(states({ projects: 1, nodes: undefined, releases: 2, allocations: 1 }, tenant).at(-1)).toBe("next");
});

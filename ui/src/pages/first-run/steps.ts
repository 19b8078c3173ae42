//! The way from nothing to a cluster: what exists already, and what to do next.

export interface Existing {
  projects: number;
  /** `undefined` where the caller may not see it. */
  nodes: number | undefined;
  releases: number | undefined;
  allocations: number | undefined;
}

export interface FirstStep {
  key: "project" | "release" | "node" | "allocation" | "deploy";
  label: string;
  text: string;
  path: string;
  action: string;
  state: "done" | "next" | "later";
  /** False where another role has to act. */
  mine: boolean;
  /** Who that is. */
  by: "an admin" | "an operator" | "a member";
}

export interface Rights {
  projects: boolean;
  artifacts: boolean;
  nodes: boolean;
  allocations: boolean;
  workloads: boolean;
}

/** Who can do a step. */
const BY: Record<FirstStep["key"], FirstStep["by"]> = {
  project: "an admin",
  release: "an operator",
  node: "an operator",
  allocation: "an operator",
  deploy: "a member",
};

/** The steps in their order; the first that is not done is the next. */
export function firstSteps(existing: Existing, may: Rights): FirstStep[] {
  const has = (count: number | undefined): boolean => (count ?? 0) > 0;
  // A project with an allocation has a node, also where the fleet is not visible.
  const hasNode = existing.nodes === undefined ? has(existing.allocations) : has(existing.nodes);
  const all: (Omit<FirstStep, "state" | "by"> & { done: boolean })[] = [
    {
      key: "project",
      label: "Create a project",
      text: "Machines and workloads belong to a project.",
      path: "/settings/projects?create=1",
      action: "Create a project",
      done: existing.projects > 0,
      mine: may.projects,
    },
    {
      key: "release",
      label: "Import a release",
      text: "The files of an app, checked against their publisher's checksums.",
      path: "/artifacts?import=1",
      action: "Import a release",
      done: has(existing.releases),
      mine: may.artifacts,
    },
    {
      key: "node",
      label: "Register a machine",
      text: "One command on the machine connects its agent.",
      path: "/nodes?register=1",
      action: "Register a machine",
      done: hasNode,
      mine: may.nodes,
    },
    {
      key: "allocation",
      label: "Allocate the machine",
      text: "An allocation gives the project the use of a node.",
      path: "/allocations?create=1",
      action: "Allocate a node",
      done: has(existing.allocations),
      mine: may.allocations,
    },
    {
      key: "deploy",
      label: "Deploy a cluster",
      text: "Choose the machines, see the plan, and watch it run.",
      path: "/deploy",
      action: "Deploy an app",
      done: false,
      mine: may.workloads,
    },
  ];
  const next = all.findIndex((step) => !step.done);
  return all.map(({ done, ...step }, index) => ({
    ...step,
    by: BY[step.key],
    state: done ? "done" : index === next ? "next" : "later",
  }));
}

//! Every page of the shell, one a line: its address, its file below `pages/`, and its place in the navigation.
//!
//! A page is loaded when it is first opened. A line whose file does not exist is left out.

import type { Component } from "svelte";

import type { Permission } from "../api/types";

export type NavCount = "workloads" | "allocations" | "operations" | "nodes";

export interface NavEntry {
  label: string;
  group: "project" | "platform";
  /** The number beside the label. */
  count?: NavCount;
}

export interface PageLine {
  path: string;
  file: string;
  /** The permission without which the API refuses everything on the page. */
  needs?: Permission;
  nav?: NavEntry;
}

const LINES: readonly PageLine[] = [
  {
    path: "/workloads",
    file: "workloads/Workloads",
    needs: "project.read",
    nav: { label: "Workloads", group: "project", count: "workloads" },
  },
  { path: "/workloads/:workload", file: "workload/WorkloadPage", needs: "workloads.read" },
  { path: "/workloads/:workload/:tab", file: "workload/WorkloadPage", needs: "workloads.read" },
  {
    path: "/allocations",
    file: "allocations/Allocations",
    needs: "project.read",
    nav: { label: "Allocations", group: "project", count: "allocations" },
  },
  { path: "/allocations/:allocation", file: "allocations/Allocation", needs: "project.read" },
  { path: "/apps", file: "apps/Apps", needs: "project.read", nav: { label: "Apps", group: "project" } },
  { path: "/apps/:app", file: "apps/App", needs: "project.read" },
  { path: "/apps/:app/deploy", file: "deploy/Deploy", needs: "workloads.write" },
  { path: "/deploy", file: "deploy/Catalog", needs: "workloads.write" },
  {
    path: "/operations",
    file: "operations/Operations",
    needs: "workloads.read",
    nav: { label: "Operations", group: "project", count: "operations" },
  },
  { path: "/operations/:operation", file: "operations/OperationPage", needs: "workloads.read" },
  { path: "/tasks/:task", file: "tasks/Task", needs: "project.read" },
  {
    path: "/nodes",
    file: "nodes/Nodes",
    needs: "platform.read",
    nav: { label: "Nodes", group: "platform", count: "nodes" },
  },
  { path: "/nodes/:node", file: "nodes/NodePage", needs: "project.read" },
  { path: "/nodes/:node/:tab", file: "nodes/NodePage", needs: "project.read" },
  {
    path: "/artifacts",
    file: "artifacts/Artifacts",
    needs: "project.read",
    nav: { label: "Artifacts", group: "platform" },
  },
  { path: "/audit", file: "audit/Audit", needs: "audit.read", nav: { label: "Audit", group: "platform" } },
  { path: "/access", file: "access/Access", needs: "tokens.write", nav: { label: "Access", group: "platform" } },
  { path: "/settings", file: "settings/Settings", nav: { label: "Settings", group: "platform" } },
  { path: "/settings/:tab", file: "settings/Settings" },
  { path: "/sessions", file: "sessions/Sessions" },
];

/** What every page component gets: the parameters of its address. */
export interface PageProps<Name extends string = string> {
  params: Record<Name, string>;
}

export type PageComponent = Component<PageProps>;

export interface PageEntry extends PageLine {
  load: () => Promise<{ default: PageComponent }>;
}

/** The lines whose files exist, with their loaders. */
export function existing(lines: readonly PageLine[], files: Record<string, PageEntry["load"]>): PageEntry[] {
  return lines.flatMap((line) => {
    const load = files[`./${line.file}.svelte`];
    return load === undefined ? [] : [{ ...line, load }];
  });
}

export const pages = existing(
  LINES,
  import.meta.glob<{ default: PageComponent }>(["./*/*.svelte", "!./sign-in/*", "!./workload/*Tab.svelte"]),
);

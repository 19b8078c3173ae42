//! Workloads by section, as the API assigns them.

import type { Lifecycle, Section, Workload } from "../../api/types";
import { compareNames } from "../../text/order";

export const SECTIONS: readonly { id: Section; label: string }[] = [
  { id: "needs_attention", label: "Needs attention" },
  { id: "active", label: "Active" },
  { id: "stopped", label: "Stopped" },
  { id: "history", label: "History" },
];

/** The section of workloads of a server that assigns none. */
function fallback(workload: Pick<Workload, "lifecycle" | "health">): Section {
  const byLifecycle: Partial<Record<Lifecycle, Section>> = {
    stopped: "stopped",
    decommissioned: "history",
    running: workload.health === "healthy" ? "active" : "needs_attention",
  };
  return byLifecycle[workload.lifecycle] ?? "needs_attention";
}

export function sectionOf(workload: Pick<Workload, "section" | "lifecycle" | "health">): Section {
  return workload.section ?? fallback(workload);
}

/** The workloads of each section, newest need first where somebody has to look, by name elsewhere. */
export function bySection(workloads: readonly Workload[], filter: string): Record<Section, Workload[]> {
  const sections: Record<Section, Workload[]> = { needs_attention: [], active: [], stopped: [], history: [] };
  for (const workload of workloads) {
    if (matches(workload, filter)) sections[sectionOf(workload)].push(workload);
  }
  sections.needs_attention.sort((a, b) => urgency(a) - urgency(b) || byName(a, b));
  sections.active.sort(byName);
  sections.stopped.sort(byName);
  sections.history.sort((a, b) => b.created_at.localeCompare(a.created_at));
  return sections;
}

/** What failed comes before what is under way. */
function urgency(workload: Workload): number {
  if (workload.health === "failed" || workload.lifecycle === "failed") return 0;
  return workload.health === "degraded" ? 1 : 2;
}

function byName(a: Workload, b: Workload): number {
  return compareNames(a.name, b.name);
}

/** True if every word of the filter is in the name, the app, the version, the phase or the endpoint. */
export function matches(workload: Workload, filter: string): boolean {
  const { name, app, version, phase, endpoint } = workload;
  const text = [name, app, version, phase, endpoint ?? ""].join(" ").toLowerCase();
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

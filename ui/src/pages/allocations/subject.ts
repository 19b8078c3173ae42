//! An allocation as the one thing that a request changes.

import type { Subject } from "../../api/change.svelte";
import { api, takeTagged } from "../../api/client";
import type { Allocation, AllocationState } from "../../api/types";
import { lookOf } from "../../components/looks";
import { oneLine } from "../../text/plain";

export function allocationSubject(id: string): Subject<Allocation> {
  return {
    name: "The allocation",
    read: () => takeTagged(api.GET("/api/v1/allocations/{id}", { params: { path: { id } } })),
    facts: allocationFacts,
  };
}

export function allocationFacts({ state, workload }: Allocation): Record<string, string> {
  return {
    "The allocation": wordOf(state),
    "The workload that uses it": workload ? oneLine(workload) : "none",
  };
}

function wordOf(state: AllocationState): string {
  return state === "release_failed" ? "held after a failed release" : lookOf("allocation", state).word.toLowerCase();
}

//! The allocations of a project as placements for an app.

import { api, take } from "../api/client";
import type { Event, PlacementOption } from "../api/types";
import type { LiveSource } from "../live/live.svelte";
import { listSource } from "../live/list";
import type { SchemaField } from "../schema/fields";
import type { Draft } from "../schema/values";
import { compareNames } from "../text/order";

/** Events after which an allocation can have become usable or unusable. */
const TOUCHES = new Set<Event["kind"]>(["allocation.changed", "workload.requested", "operation.ended"]);

export function placementOptions(app: string, project: string | undefined): LiveSource<PlacementOption[]> {
  return listSource<PlacementOption>({
    key: `placement options ${app} ${project ?? ""}`,
    page: (cursor, signal) =>
      take(
        api.GET("/api/v1/apps/{slug}/placement-options", {
          params: { path: { slug: app }, query: { project, cursor } },
          signal,
        }),
      ),
    id: (option) => option.allocation.id,
    on: (event) => TOUCHES.has(event.kind) || event.kind.startsWith("node."),
  });
}

/** The options with the usable ones first, each group by the name of the node; only those whose node's name has `filter` in it. */
export function inOrder(options: readonly PlacementOption[], filter: string): PlacementOption[] {
  const wanted = filter.trim().toLowerCase();
  const name = (option: PlacementOption): string => option.allocation.node_name;
  return options
    .filter((option) => name(option).toLowerCase().includes(wanted))
    .sort((a, b) => Number(b.usable) - Number(a.usable) || compareNames(name(a), name(b)));
}

export function isAllocationField(field: SchemaField): boolean {
  return field.kind === "allocation" || field.kind === "allocations";
}

/** The ids of allocations that a draft names for a field. */
export function chosenFor(draft: Draft, key: string): readonly string[] {
  const value = draft[key];
  if (typeof value === "string") return value === "" ? [] : [value];
  return Array.isArray(value) ? (value as readonly string[]) : [];
}

/** The draft after a person chose an allocation for a field, or took it away. An allocation has one place: it leaves all other fields. */
export function choose(
  fields: readonly SchemaField[],
  draft: Draft,
  field: SchemaField,
  id: string,
  on: boolean,
): Draft {
  const next: Draft = { ...draft };
  for (const other of fields.filter(isAllocationField)) {
    const kept = chosenFor(draft, other.key).filter((chosen) => chosen !== id);
    next[other.key] = other.kind === "allocations" ? kept : (kept[0] ?? "");
  }
  if (!on) return next;
  next[field.key] = field.kind === "allocations" ? [...chosenFor(next, field.key), id] : id;
  return next;
}

//! The page of what an audit record is about.

import type { AuditEntry } from "../../api/types";
import { pathOf } from "../../router/router.svelte";

/** Address of a record's target, if the shell has a page for it. */
export function targetPath(record: Pick<AuditEntry, "target" | "action">): string | undefined {
  const slash = record.target.indexOf("/");
  const [kind, name] = [record.target.slice(0, slash), record.target.slice(slash + 1)];
  if (slash < 1 || name === "" || record.action.endsWith(".delete")) return undefined;
  switch (kind) {
    case "node":
      return pathOf("nodes", name);
    case "workload":
      return pathOf("workloads", name);
    case "operation":
      return pathOf("operations", name);
    case "allocation":
      return pathOf("allocations", name);
    case "task":
      return pathOf("tasks", name);
    default:
      return undefined;
  }
}

//! Objects of the platform that the addresses of pages name.

import type { Objects } from "./pages.ts";
import { type Platform, PROJECT } from "./platform.ts";

export async function objectsOf(platform: Platform): Promise<Objects> {
  const { workload, operation } = await platform.workload("train");
  const first = async (path: string): Promise<string> => {
    const { items } = (await platform.take("GET", `/api/v1/${path}`)) as { items: { id: string }[] };
    const found = items[0]?.id;
    if (found === undefined) throw new Error(`the platform has none of ${path}`);
    return found;
  };
  return {
    workload: workload.name,
    node: "demo-1",
    app: workload.app,
    allocation: await first(`allocations?project=${PROJECT}`),
    operation: operation ?? (await first(`operations?project=${PROJECT}`)),
    task: await first("tasks?node=demo-1"),
  };
}

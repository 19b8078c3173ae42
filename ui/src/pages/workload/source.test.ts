import { afterEach, expect, test, vi } from "vitest";

import { api } from "../../api/client";
import { arrivals } from "../../live/arrivals.svelte";
import { workloadDetail } from "./source";

afterEach(() => vi.restoreAllMocks());

/** Reads a workload twice, with a new member in the second reading. Returns what was announced. */
async function announced(listsMembers: boolean): Promise<unknown[]> {
  const add = vi.spyOn(arrivals, "add").mockImplementation(() => undefined);
  const { signal } = new AbortController();
  const source = workloadDetail("train", "ml", { listsMembers });
  for (const names of [["agent-1"], ["agent-1", "agent-2"]]) {
    const data = { workload: { id: "w-1" }, members: names.map((name) => ({ name })) };
    vi.spyOn(api, "GET").mockResolvedValue({ data, response: new Response() } as never);
    await source.load(signal);
  }
  return add.mock.calls.filter(([, entries]) => entries.length > 0);
}

test("a new member is announced where members are listed, and nowhere else", async () => {
  expect(await announced(true)).toEqual([["member", [{ id: "w-1/agent-2", name: "agent-2" }]]]);
  vi.restoreAllMocks();
  expect(await announced(false)).toEqual([]);
});

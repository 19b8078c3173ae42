import { expect, test, vi } from "vitest";

import { journalOf } from "./journal";

const of = { project: "ml", workload: "a/b", member: "agent-1" };
const read = (body: string): Promise<unknown[]> => {
  vi.stubGlobal("fetch", vi.fn().mockResolvedValue(new Response(body)));
  return journalOf(of, new AbortController().signal);
};

test("lines are read one by one, and a cut line is left out", async () => {
  const text = '{"at":"2026-07-01T12:00:00Z","text":"started"}\n\n{"at":"2026-07-01T12:00:01Z","te';
  expect(await read(text)).toEqual([{ at: "2026-07-01T12:00:00Z", text: "started" }]);
  const address = "/api/v1/workloads/a%2Fb/members/agent-1/logs?tail=200&project=ml";
  expect(fetch).toHaveBeenCalledWith(address, expect.anything());
});

test("documents without text are no lines", async () => {
  expect(await read('null\n3\n{"at":"x"}\n')).toEqual([]);
});

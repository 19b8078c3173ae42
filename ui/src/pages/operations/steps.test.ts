import { expect, it } from "vitest";

import type { Step, Task } from "../../api/types";
import { memberOfStep, notableStep, partsOf } from "./steps";

const step = (changes: Partial<Step>): Step => ({
  key: "agent-2/start",
  phase: "agent_joining",
  state: "succeeded",
  attempts: 1,
  started_at: "2026-07-01T12:00:00.000Z",
  ...changes,
});

const task: Task = {
  id: "t",
  node: "n",
  type: "host.noop",
  schema: 1,
  attempt: 1,
  state: "succeeded",
  key_id: "k",
  envelope_sha256: "00",
  fence: 1,
  created_at: "2026-07-01T12:00:01.000Z",
  ended_at: "2026-07-01T12:00:05.000Z",
};

it("knows the member of a step by its key", () => {
  expect(memberOfStep(step({}), [{ name: "agent-2" }])).toBe("agent-2");
  expect(memberOfStep(step({ key: "placement_validated" }), [{ name: "agent-2" }])).toBeUndefined();
});

it("shows a failed step first, then one that runs", () => {
  const [done, runs, failed] = [step({}), step({ state: "running" }), step({ state: "failed" })];
  expect(notableStep([done, runs, failed])).toBe(failed);
  expect(notableStep([done, runs])).toBe(runs);
  expect(notableStep([done, step({ state: "pending", started_at: null })])).toBe(done);
});

it("divides a step's time by its task", () => {
  const now = Date.parse("2026-07-01T12:00:10.000Z");
  expect(partsOf(step({ ended_at: "2026-07-01T12:00:06.000Z" }), task, now)).toEqual([
    { name: "before the task", ms: 1_000 },
    { name: "task", ms: 4_000 },
    { name: "after the task", ms: 1_000 },
  ]);
  expect(partsOf(step({ attempts: 3 }), { ...task, ended_at: null }, now)).toEqual([
    { name: "earlier attempts and waits", ms: 1_000 },
    { name: "task", ms: 9_000 },
  ]);
  expect(partsOf(step({ started_at: null }), undefined, now)).toEqual([]);
});

import { describe, expect, it } from "vitest";

import type { Step, Task } from "../api/types";
import { type Segment, segmentsOf, totals } from "./segments";

const BEGIN = Date.parse("2026-07-01T12:00:00Z");
const at = (seconds: number): string => new Date(BEGIN + seconds * 1_000).toISOString();
const NOW = BEGIN + 60_000;

function step(changes: Partial<Step> = {}): Step {
  return {
    key: "agent-1/start",
    phase: "agent_joining",
    state: "succeeded",
    attempts: 1,
    task: "t1",
    started_at: at(0),
    ended_at: at(10),
    ...changes,
  };
}

function task(id: string, attempt: number, from: number, to: number | undefined, changes: Partial<Task> = {}): Task {
  return {
    id,
    node: "n1",
    type: "host.noop",
    schema: 1,
    attempt,
    state: to === undefined ? "dispatched" : "succeeded",
    key_id: "k1",
    envelope_sha256: "00",
    fence: 1,
    created_at: at(from),
    ended_at: to === undefined ? null : at(to),
    ...changes,
  };
}

/** `dispatch 0-1`, in seconds since the step began. */
function shown(segments: readonly Segment[]): string[] {
  return segments.map(({ kind, from, to }) => `${kind} ${(from - BEGIN) / 1_000}-${(to - BEGIN) / 1_000}`);
}

describe("segmentsOf", () => {
  it("divides a step into its dispatch, its task, and what follows", () => {
    expect(shown(segmentsOf(step(), [task("t1", 1, 1, 9)], NOW))).toEqual(["dispatch 0-1", "run 1-9", "own 9-10"]);
  });

  it("has a segment for each attempt and for each wait between them, in whatever order the tasks come", () => {
    const tasks = [task("t3", 3, 7, 10), task("t1", 1, 0, 2), task("t2", 2, 4, 5)];
    const segments = segmentsOf(step({ attempts: 3, task: "t3" }), tasks, NOW);
    expect(shown(segments)).toEqual(["run 0-2", "backoff 2-4", "run 4-5", "backoff 5-7", "run 7-10"]);
    expect(totals(segments)).toEqual([
      { kind: "run", words: "running on the node", ms: 6_000 },
      { kind: "backoff", words: "backing off between attempts", ms: 4_000 },
    ]);
  });

  it("takes no task of another step for an earlier attempt", () => {
    const others = [
      task("other-node", 1, 0, 3, { node: "n2" }),
      task("other-type", 1, 0, 3, { type: "host.inspect" }),
      task("earlier-step", 1, -30, -20),
    ];
    const segments = segmentsOf(step({ attempts: 2, task: "t2" }), [...others, task("t2", 2, 4, 10)], NOW);
    expect(shown(segments)).toEqual(["backoff 0-4", "run 4-10"]);
  });

  it("grows with a running step, with its task or with the wait for the next attempt", () => {
    const running = step({ state: "running", ended_at: null });
    expect(shown(segmentsOf(running, [task("t1", 1, 0, undefined)], NOW))).toEqual(["run 0-60"]);
    const waiting = step({ state: "backoff", ended_at: null });
    expect(shown(segmentsOf(waiting, [task("t1", 1, 0, 5)], NOW))).toEqual(["run 0-5", "backoff 5-60"]);
  });

  it("is empty for a step that never began, and for one whose task is not known yet", () => {
    expect(segmentsOf(step({ state: "skipped", started_at: null, task: null }), [], NOW)).toEqual([]);
    expect(segmentsOf(step({ state: "pending", started_at: null, ended_at: null, task: null }), [], NOW)).toEqual([]);
    expect(segmentsOf(step(), [], NOW)).toEqual([]);
  });

  it("is one segment for a step without a task", () => {
    expect(shown(segmentsOf(step({ task: null }), [task("t1", 1, 1, 9)], NOW))).toEqual(["own 0-10"]);
  });

  it("has no gap and no overlap where clocks differ", () => {
    // The replica that recorded the tasks was ahead, then behind.
    const ahead = segmentsOf(step(), [task("t1", 1, 2, 12)], NOW);
    expect(shown(ahead)).toEqual(["dispatch 0-2", "run 2-10"]);
    const behind = segmentsOf(step(), [task("t1", 1, -3, 8)], NOW);
    expect(shown(behind)).toEqual(["run 0-8", "own 8-10"]);
    const crossed = segmentsOf(step({ attempts: 2, task: "t2" }), [task("t1", 1, 0, 6), task("t2", 2, 5, 10)], NOW);
    expect(shown(crossed)).toEqual(["run 0-6", "run 6-10"]);
    const early = step({ state: "running", ended_at: null });
    expect(segmentsOf(early, [task("t1", 1, 0, undefined)], BEGIN - 5_000), "a clock behind the beginning").toEqual([]);
  });
});

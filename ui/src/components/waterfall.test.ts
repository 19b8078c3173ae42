import { describe, expect, it } from "vitest";

import type { Step } from "../api/types";
import { axisOf, barOf, rowsOf } from "./waterfall";

const BEGIN = Date.parse("2026-07-01T12:00:00Z");

function step(key: string, from: number | undefined, to: number | undefined, changes: Partial<Step> = {}): Step {
  const at = (seconds: number | undefined): string | null =>
    seconds === undefined ? null : new Date(BEGIN + seconds * 1_000).toISOString();
  return {
    key,
    phase: "installing",
    state: "succeeded",
    attempts: 1,
    started_at: at(from),
    ended_at: at(to),
    ...changes,
  };
}

describe("rowsOf", () => {
  it("keeps every step of a short operation", () => {
    expect(rowsOf([step("server-1/install", 0, 41)])[0]?.label).toBe("server-1 install");
  });

  it("folds what succeeded in a long one, and keeps what did not", () => {
    const steps = Array.from({ length: 60 }, (_, index) => step(`agent-${index}/start`, index, index + 1));
    steps[30] = step("agent-30/start", 30, 31, { state: "failed" });
    const rows = rowsOf(steps);
    expect(rows.map((row) => row.label)).toEqual(["installing: 30 steps", "agent-30 start", "installing: 29 steps"]);
    expect(rows[0]?.to).toBe(BEGIN + 30_000);
  });
});

describe("axisOf", () => {
  it("has round lines, at most five spans", () => {
    const axis = axisOf(BEGIN, undefined, BEGIN + 522_000);
    expect(axis.ticks.map((tick) => (tick - BEGIN) / 60_000)).toEqual([0, 2, 4, 6, 8]);
  });
});

describe("barOf", () => {
  const axis = axisOf(BEGIN, BEGIN + 100_000, BEGIN + 100_000);

  it("shares one axis", () => {
    const [row] = rowsOf([step("a", 25, 75)]);
    expect(row && barOf(row, axis, BEGIN)).toEqual({ start: 0.25, length: 0.5 });
  });

  it("grows with a running step and is absent before it begins", () => {
    const [running] = rowsOf([step("a", 50, undefined, { state: "running" })]);
    expect(running && barOf(running, axis, BEGIN + 60_000)).toEqual({ start: 0.5, length: expect.closeTo(0.1) });
    const [pending] = rowsOf([step("a", undefined, undefined, { state: "pending" })]);
    expect(pending && barOf(pending, axis, BEGIN)).toBeUndefined();
  });
});

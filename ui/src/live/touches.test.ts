import { describe, expect, it } from "vitest";

import type { Event } from "../api/types";
import { nodeOf, operationOf, Touched, workloadOf } from "./touches";

function event(subject_kind: string, subject_id: string, data: unknown = {}): Event {
  return { stream: "platform", sequence: 1, at: "", kind: "workload.changed", subject_kind, subject_id, data };
}

it("finds the objects that an event is about", () => {
  expect(workloadOf(event("workload", "w1"))).toBe("w1");
  expect(workloadOf(event("step", "s1", { workload: "w2" }))).toBe("w2");
  expect(operationOf(event("step", "s1", { operation: "o1" }))).toBe("o1");
  expect(nodeOf(event("node", "n1"))).toBe("n1");
  expect(workloadOf(event("node", "n1", null))).toBeUndefined();
});

describe("Touched", () => {
  it("gathers ids once", () => {
    const touched = new Touched();
    for (const id of ["a", "b", "a"]) touched.add(id);
    expect(touched.take(8)).toEqual(["a", "b"]);
    expect(touched.isEmpty).toBe(true);
  });

  it("becomes everything with too many ids, or with a touch of all", () => {
    const touched = new Touched();
    for (const id of ["a", "b", "c"]) touched.add(id);
    expect(touched.take(2)).toBeUndefined();
    touched.add("a");
    touched.add(true);
    expect(touched.take(8)).toBeUndefined();
  });

  it("ignores events that touch nothing", () => {
    const touched = new Touched();
    touched.add(false);
    expect(touched.isEmpty).toBe(true);
  });
});

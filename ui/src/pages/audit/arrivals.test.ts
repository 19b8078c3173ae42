import { expect, test } from "vitest";

import type { AuditEntry } from "../../api/types";
import { arrived, joined } from "./arrivals";

function records(...sequences: number[]): AuditEntry[] {
  return sequences.map((sequence) => ({
    sequence,
    at: "2026-07-01T12:00:00Z",
    actor: "ann",
    actor_type: "principal",
    action: "node.ping",
    target: "node/gpu-1",
    result: "accepted",
    metadata: {},
  }));
}

test("newer records are counted and joined on top", () => {
  const shown = records(5, 4, 3);
  const newest = records(7, 6, 5);
  expect(arrived(newest, shown)).toHaveLength(2);
  expect(joined(newest, shown)?.map((record) => record.sequence)).toEqual([7, 6, 5, 4, 3]);
});

test("a gap between the lists is not hidden", () => {
  expect(joined(records(9, 8), records(3, 2))).toBeUndefined();
});

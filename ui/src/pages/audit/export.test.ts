import { expect, test } from "vitest";

import type { AuditEntry } from "../../api/types";
import { fileName, jsonLines } from "./export";

test("each record is one line", () => {
  const record: AuditEntry = {
    sequence: 7,
    at: "2026-07-01T12:00:00Z",
    actor: "ann\nbob",
    actor_type: "principal",
    action: "workload.deploy",
    target: "workload/train",
    result: "accepted",
    metadata: {},
  };
  const text = jsonLines([record, record]);
  expect(text.split("\n")).toHaveLength(3);
  expect(JSON.parse(text.split("\n")[0] ?? "")).toEqual(record);
});

test("file names carry the time and no colon", () => {
  expect(fileName(Date.parse("2026-07-01T12:00:05Z"))).toBe("audit-2026-07-01T12-00-05Z.jsonl");
});

import { expect, it } from "vitest";

import type { Event } from "../../api/types";
import { eventEntry } from "./event-text";

const event = (changes: Partial<Event>): Event => ({
  stream: "project/x",
  sequence: 42,
  at: "2026-07-01T12:00:00.000Z",
  kind: "step.changed",
  subject_kind: "step",
  subject_id: "0198c0de",
  data: {},
  ...changes,
});

it("describes a step with its attempts and its fault", () => {
  const data = { key: "agent-2/start", state: "backoff", attempts: 4, detail: "joins", fault: "unit_failed" };
  const entry = eventEntry(event({ data }));
  expect(entry.text).toBe("step agent-2/start: backoff, joins, attempt 4, unit failed");
  expect(entry).toMatchObject({ number: 42, who: "step.changed", tone: "failed" });
});

it("describes an event of which it knows nothing more than the kind", () => {
  const entry = eventEntry(event({ kind: "access.delivered", subject_kind: "grant", subject_id: "g1", data: null }));
  expect(entry.text).toBe("grant g1: delivered");
});

it("shows hostile text as one plain line of bounded length", () => {
  const detail = `\u001b[31m<b>red</b>\r\n\u202e2026 other line${"x".repeat(5_000)}`;
  const { text } = eventEntry(event({ data: { key: "a/b", state: "running", detail } }));
  expect(text).toContain("running, <b>red</b>");
  // eslint-disable-next-line no-control-regex
  expect(text).not.toMatch(/[\u0000-\u001f\u202e]/);
  expect(text.length).toBeLessThanOrEqual(2_001);
});

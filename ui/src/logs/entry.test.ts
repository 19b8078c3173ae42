import { expect, it } from "vitest";

import { entryOf, segments, TEXT_MAX } from "./entry";

const at = "2026-07-01T12:00:00.000Z";

it("names a journal by its member and unit, other lines by their object", () => {
  const journal = { at, source: "journal", member: "agent-2", unit: "rke2-agent.service", text: "Starting" };
  expect(entryOf(journal, 1)).toMatchObject({ number: 1, who: "agent-2 rke2-agent", text: "Starting", tone: "plain" });
  const event = { at, source: "event", subject: "step agent-2/start", text: "failed", code: "unit_failed" };
  expect(entryOf(event, 2)).toMatchObject({ who: "step agent-2/start", tone: "failed" });
  const problem = { at, source: "problem", member: "agent-3", text: "unreachable", next: "check it" };
  expect(entryOf(problem, 3)).toMatchObject({ who: "agent-3", text: "unreachable; check it", tone: "attention" });
});

it("shows hostile lines as one plain line of bounded length", () => {
  const text = `\u001b]0;title\u0007\u001b[2J<script>alert(1)</script>\r\n12:00:00 server-1 all is well\u202e`;
  const entry = entryOf({ at, source: "journal", text }, 1);
  expect(entry.text).toBe("<script>alert(1)</script> 12:00:00 server-1 all is well");
  expect(entryOf({ at, source: "journal", text: "x".repeat(100_000) }, 1).text.length).toBeLessThan(TEXT_MAX + 60);
});

it("marks every occurrence of a search", () => {
  expect(segments("Error: an error", "error")).toEqual([
    { text: "Error", isHit: true },
    { text: ": an ", isHit: false },
    { text: "error", isHit: true },
  ]);
  expect(segments("text", "")).toEqual([{ text: "text", isHit: false }]);
  // The lower case of the first letter is two characters.
  expect(segments("İx", "x")).toEqual([{ text: "İx", isHit: true }]);
});

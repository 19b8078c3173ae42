import { expect, it } from "vitest";

import { LineParser } from "./ndjson";
import { LogCursor, logAddress } from "./request";
import { sinceOf } from "./since";

const selection = { workload: "train", members: ["agent-1", "agent-2"], sources: ["journal"], tail: 100, follow: true };

it("continues each journal and the events after what was received", () => {
  const cursor = new LogCursor();
  expect(logAddress(selection, cursor)).toBe(
    "/api/v1/workloads/train/logs?member=agent-1%2Cagent-2&source=journal&tail=100&follow=true",
  );
  const at = "2026-07-01T12:00:00.000Z";
  cursor.advance({ at, source: "journal", member: "agent-1", text: "", position: `${at}/1` });
  cursor.advance({ at, source: "journal", member: "agent-1", text: "", position: `${at}/2` });
  cursor.advance({ at, source: "event", text: "", sequence: 7 });
  const query = new URLSearchParams(logAddress(selection, cursor).split("?")[1]);
  expect(query.get("resume")).toBe(`agent-1=${at}/2`);
  expect(query.get("after_event")).toBe("7");
  expect(query.has("tail")).toBe(false);
});

it("reads documents across the borders of chunks, without broken and endless lines", () => {
  const parser = new LineParser();
  expect(parser.push('{"a":1}\n{"b"')).toEqual([{ a: 1 }]);
  expect(parser.push(':2}\nnot json\n\n{"c":3}')).toEqual([{ b: 2 }]);
  expect(parser.end()).toEqual([{ c: 3 }]);
  const endless = new LineParser();
  for (let count = 0; count < 40; count += 1) expect(endless.push("x".repeat(100_000))).toEqual([]);
  expect(endless.push('end"\n{"d":4}\n')).toEqual([{ d: 4 }]);
});

it("turns a start into a time of the server", () => {
  const now = Date.parse("2026-07-01T12:00:00.000Z");
  expect(sinceOf("latest", now)).toBeUndefined();
  expect(sinceOf("15m", now)).toBe("2026-07-01T11:45:00.000Z");
  expect(sinceOf("beginning", now)).toBe("1970-01-01T00:00:00Z");
  expect(sinceOf("time", now, "2026-07-01T10:00:00Z")).toBe("2026-07-01T10:00:00.000Z");
  expect(sinceOf("time", now, "soon")).toBeUndefined();
});

import { expect, test } from "vitest";

import { parseLines } from "./journal";

test("lines are read one by one, and a cut line is left out", () => {
  const text = '{"at":"2026-07-01T12:00:00Z","text":"started"}\n\n{"at":"2026-07-01T12:00:01Z","te';
  expect(parseLines(text)).toEqual([{ at: "2026-07-01T12:00:00Z", text: "started" }]);
});

test("documents without text are no lines", () => {
  expect(parseLines('null\n3\n{"at":"x"}\n')).toEqual([]);
});

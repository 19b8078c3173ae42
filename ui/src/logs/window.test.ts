import { expect, it } from "vitest";

import type { LogEntry } from "./entry";
import { indexOf } from "./places";
import { appended, Search } from "./window";

const line = (number: number, text = `line ${number}`): LogEntry => ({
  number,
  at: 0,
  source: "journal",
  who: "server-1",
  text,
  tone: "plain",
});
const lines = (from: number, to: number): LogEntry[] =>
  Array.from({ length: to - from }, (_, index) => line(from + index));

it("drops the oldest lines beyond the limits", () => {
  const limits = { lines: 3, characters: 100 };
  expect(appended(lines(0, 3), lines(3, 5), limits)).toEqual({ lines: lines(2, 5), dropped: 2 });
  expect(appended([], lines(0, 2), limits).dropped).toBe(0);
});

it("keeps to the limit of text, but always has the last line", () => {
  const limits = { lines: 10, characters: 10 };
  expect(appended([line(0, "12345")], [line(1, "12345"), line(2, "12345")], limits).lines).toHaveLength(2);
  expect(appended([], [line(0, "x".repeat(50))], limits).lines).toHaveLength(1);
});

it("searches only new lines, and forgets dropped ones", () => {
  const search = new Search();
  const first = search.find(lines(0, 20), "line 1");
  expect(first.map(({ number }) => number)).toEqual([1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
  expect(search.find(lines(5, 22), "line 1").map(({ number }) => number)).toEqual([
    10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
  ]);
  expect(search.find(lines(5, 22), "line 21").map(({ number }) => number)).toEqual([21]);
  expect(search.find([], "line 21")).toEqual([]);
  expect(search.find(lines(30, 32), "line 3")).toHaveLength(2);
});

it("finds a line among numbers with gaps", () => {
  expect([0, 3, 4, 9, 10].map((number) => indexOf([line(3), line(5), line(9)], number))).toEqual([0, 0, 1, 2, 3]);
});

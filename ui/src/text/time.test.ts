import { describe, expect, it } from "vitest";

import { dayAndTime, duration, relative, span } from "./time";

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;

describe("span", () => {
  it.each([
    [0, "0 s"],
    [41 * SECOND, "41 s"],
    [180 * SECOND, "3 min"],
    [47 * HOUR, "47 h"],
    [12 * 24 * HOUR, "12 d"],
  ])("%d ms is %s", (ms, text) => expect(span(ms)).toBe(text));

  it("is never negative", () => expect(span(-5 * SECOND)).toBe("0 s"));
});

describe("relative", () => {
  it("names the past, the future and the present", () => {
    expect(relative(0, 3 * 60 * SECOND)).toBe("3 min ago");
    expect(relative(12 * HOUR, 0)).toBe("in 12 h");
    expect(relative(1_000, 1_400)).toBe("now");
  });
});

describe("duration", () => {
  it.each([
    [8, "8 ms"],
    [400, "0.4 s"],
    [41_000, "41 s"],
    [112_000, "1 min 52 s"],
    [120_000, "2 min"],
    [2 * HOUR + 300_000, "2 h 5 min"],
    [26 * HOUR, "1 d 2 h"],
  ])("%d ms is %s", (ms, text) => expect(duration(ms)).toBe(text));
});

describe("dayAndTime", () => {
  it("says today only for the same day", () => {
    const noon = new Date(2026, 6, 1, 12, 5).getTime();
    expect(dayAndTime(noon, noon + HOUR)).toBe("today 12:05");
    expect(dayAndTime(noon, noon + 24 * HOUR)).toBe("2026-07-01 12:05");
  });
});

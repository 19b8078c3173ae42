import { expect, test } from "vitest";

import type { BrowserSession } from "../../api/types";
import { hasEnded } from "./source";

const entry = {
  id: "1",
  current: false,
  expires_at: "2026-07-01T20:00:00Z",
  idle_expires_at: "2026-07-01T12:30:00Z",
} as BrowserSession;
const ended = (of: BrowserSession, at: string): boolean => hasEnded(of, Date.parse(at));

test("a session ends with its time, or earlier without use", () => {
  expect(ended(entry, "2026-07-01T12:29:59Z")).toBe(false);
  expect(ended(entry, "2026-07-01T12:30:00Z")).toBe(true);
  const used = { ...entry, idle_expires_at: "2026-07-01T20:10:00Z" };
  expect(ended(used, "2026-07-01T19:59:59Z")).toBe(false);
  expect(ended(used, "2026-07-01T20:00:00Z")).toBe(true);
});

test("the present session is shown as long as the control plane accepts it", () => {
  expect(ended({ ...entry, current: true }, "2026-07-02T00:00:00Z")).toBe(false);
});

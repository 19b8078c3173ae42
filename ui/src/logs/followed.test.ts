import { beforeEach, expect, it, vi } from "vitest";

import { FollowedLog } from "./followed.svelte";
import type { LogSelection } from "./request";

let since: string | undefined;
beforeEach(() => (since = undefined));

function setUp() {
  const selection = (follow: boolean): LogSelection => ({ workload: "train", members: [], sources: [], since, follow });
  const log = new FollowedLog(selection);
  const start = vi.spyOn(log.feed, "start").mockImplementation(() => undefined);
  return { log, start };
}

it("keeps the lines of the window while a person reads older ones of a followed log", () => {
  const { log } = setUp();
  log.read();
  expect([log.stuck, log.feed.hold]).toEqual([true, false]);
  log.scrolled(false);
  expect([log.stuck, log.feed.hold]).toEqual([false, true]);
  log.follow = false;
  expect(log.feed.hold).toBe(false);
  log.follow = true;
  log.scrolled(true);
  expect([log.stuck, log.feed.hold]).toEqual([true, false]);
});

it("reads the newest lines again after the window was full", () => {
  const { log, start } = setUp();
  log.scrolled(false);
  log.feed.state = "held";
  log.scrolled(true);
  expect([start.mock.calls.length, log.stuck]).toEqual([1, true]);
  log.feed.state = "live";
  log.toNewest();
  expect(start).toHaveBeenCalledTimes(1);
});

it("moves with the lines of a log that is not followed only once it is read to its end", () => {
  const { log } = setUp();
  log.follow = false;
  log.feed.state = "more";
  log.scrolled(true);
  expect(log.stuck).toBe(false);
  log.feed.state = "ended";
  log.scrolled(true);
  expect(log.stuck).toBe(true);
});

it("begins at the end, or at the start that was chosen for a log that is not followed", () => {
  const { log, start } = setUp();
  since = "2026-07-01T12:00:00.000Z";
  log.read();
  expect(log.stuck).toBe(true);
  log.follow = false;
  log.read();
  expect(log.stuck).toBe(false);
  since = undefined;
  log.read();
  expect(log.stuck).toBe(true);
  expect(start.mock.calls.map(([{ follow }]) => follow)).toEqual([true, false, false]);
});

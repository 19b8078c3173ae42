import { afterEach, expect, it, vi } from "vitest";

import type { Event } from "../api/types";
import { type Follower, hub, type Scope } from "./hub.svelte";
import { Live, oldestOf } from "./live.svelte";

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

it("after the loss of the stream, the page is as old as its oldest value", () => {
  const lostSince = 1_000;
  // A value that was read before was kept current by events until the loss.
  expect(oldestOf(lostSince, [200, 1_500])).toBe(1_000);
  expect(oldestOf(lostSince, [1_500, 1_200, undefined])).toBe(1_200);
  expect(oldestOf(lostSince, [])).toBe(1_000);
});

/** Follows the streams of the platform and of the project at once. */
function setUp() {
  vi.stubGlobal("document", { hidden: false });
  const followers = new Map<Scope, Follower>();
  vi.spyOn(hub, "follow").mockImplementation((scope, follower) => {
    followers.set(scope, follower);
    return () => followers.delete(scope);
  });
  let loads = 0;
  const live = new Live<number>();
  const stop = live.follow({
    key: "nodes",
    scope: ["platform", "project"],
    load: () => Promise.resolve((loads += 1)),
    on: (event) => event.kind === "node.enrolled" || event.kind === "allocation.changed",
  });
  const send = (scope: Scope, kind: string): void =>
    followers
      .get(scope)
      ?.events([{ stream: scope, sequence: 1, at: "", kind, subject_kind: "", subject_id: "", data: {} } as Event]);
  return { live, followers, stop, send, loads: () => loads };
}

it("a value follows two streams: an event of either reads it again, and those of both at once are one reading", async () => {
  const { live, followers, send, loads } = setUp();
  await expect.poll(() => live.value).toBe(1);
  expect([...followers.keys()]).toEqual(["platform", "project"]);
  send("platform", "node.enrolled");
  await expect.poll(() => live.value).toBe(2);
  send("project", "allocation.changed");
  await expect.poll(() => live.value).toBe(3);
  send("platform", "node.enrolled");
  send("project", "allocation.changed");
  await expect.poll(() => live.value).toBe(4);
  send("project", "step.changed");
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(loads()).toBe(4);
});

it("a stream that lost events reads the value again, although the other one is complete", async () => {
  const { live, followers } = setUp();
  await expect.poll(() => live.value).toBe(1);
  followers.get("project")?.refreshSince(-Infinity);
  followers.get("platform")?.refreshSince(performance.now() + 1);
  await expect.poll(() => live.value).toBe(2);
});

it("a value that is no longer followed leaves both streams", async () => {
  const { live, followers, stop, loads } = setUp();
  await expect.poll(() => live.value).toBe(1);
  const left = [...followers.values()];
  stop();
  expect(followers.size).toBe(0);
  left.forEach((follower) => follower.refreshSince(Infinity));
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(loads()).toBe(1);
});

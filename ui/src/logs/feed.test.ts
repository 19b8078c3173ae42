import { expect, it, vi } from "vitest";

import { LogFeed } from "./feed.svelte";

const SELECTION = { workload: "train", members: [], sources: [], tail: 10, follow: false };

function answer(texts: readonly string[]): void {
  const lines = texts.map((text) => ({ at: "2026-07-01T12:00:00.000Z", source: "journal", member: "agent-1", text }));
  const body = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(body)));
  vi.stubGlobal("document", { hidden: false });
  vi.stubGlobal("requestAnimationFrame", (draw: () => void) => queueMicrotask(draw));
}

it("a feed with limits keeps the last lines, and counts the others", async () => {
  answer(["a", "b", "c", "d"]);
  const feed = new LogFeed(undefined, { lines: 2, characters: 1_000 });
  feed.start(SELECTION);
  await expect.poll(() => feed.state).toBe("ended");
  expect([feed.lines.map(({ text }) => text), feed.dropped, feed.received]).toEqual([["c", "d"], 2, 4]);
  vi.unstubAllGlobals();
});

import { flushSync } from "svelte";
import { expect, it } from "vitest";

import { type Live, live } from "./live.svelte";

/** Lets the promises of a reading settle. */
const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

function setUp() {
  const log: string[] = [];
  let project = $state<string | undefined>("ours");
  let filter = $state("");
  let result: Live<string> | undefined;
  const stop = $effect.root(() => {
    result = live(() => {
      const key = project;
      void filter;
      if (key === undefined) return undefined;
      const load = (signal: AbortSignal): Promise<string> => {
        log.push(key);
        signal.addEventListener("abort", () => log.push(`no more ${key}`));
        return Promise.resolve(`value of ${key}`);
      };
      return { key, load, on: () => false };
    });
  });
  if (result === undefined) throw new Error("nothing is read");
  const change = (changes: { project?: string | undefined; filter?: string }): void => {
    if ("project" in changes) ({ project } = changes);
    if (changes.filter !== undefined) ({ filter } = changes);
    flushSync();
  };
  flushSync();
  return { log, result, change, stop };
}

it("a source is read once, although something that it depends on changes, as long as its key stays", async () => {
  const { log, result, change, stop } = setUp();
  await settled();
  change({ filter: "x" });
  await settled();
  expect([log, result.value]).toEqual([["ours"], "value of ours"]);
  stop();
});

it("with another key, the value of the one before is gone at once and is no longer read", async () => {
  const { log, result, change, stop } = setUp();
  await settled();
  change({ project: "theirs" });
  expect(result.value).toBeUndefined();
  await settled();
  expect([log, result.value]).toEqual([["ours", "no more ours", "theirs"], "value of theirs"]);
  stop();
});

it("a component that goes reads nothing more, and neither does one without a source", async () => {
  const { log, change, stop } = setUp();
  await settled();
  change({ project: undefined });
  expect(log).toEqual(["ours", "no more ours"]);
  change({ project: "ours" });
  stop();
  expect(log).toEqual(["ours", "no more ours", "ours", "no more ours"]);
  await settled();
  expect(log).toHaveLength(4);
});

it("effects that show the value run when it arrives", async () => {
  const { result, change, stop } = setUp();
  const seen: (string | undefined)[] = [];
  const end = $effect.root(() => {
    $effect(() => {
      seen.push(result.value);
    });
  });
  flushSync();
  await settled();
  flushSync();
  change({ project: "theirs" });
  await settled();
  flushSync();
  expect(seen).toEqual([undefined, "value of ours", undefined, "value of theirs"]);
  end();
  stop();
});

import { expect, it } from "vitest";

import { AFTER_DIALOG_MS, Arrivals, MARKED_MS, PAUSE_MS } from "./arrivals.svelte";

function setUp() {
  let at = 0;
  let timers: { at: number; run: () => void }[] = [];
  const arrivals = new Arrivals({
    now: () => at,
    after: (ms, run) => {
      const timer = { at: at + ms, run };
      timers.push(timer);
      return () => (timers = timers.filter((other) => other !== timer));
    },
  });
  const pass = (ms: number): void => {
    at += ms;
    const due = timers.filter((timer) => timer.at <= at);
    timers = timers.filter((timer) => timer.at > at);
    due.forEach((timer) => timer.run());
  };
  return { arrivals, pass };
}

const entry = (name: string) => ({ id: `id of ${name}`, name });

it("names a single entry at once, in one line, and stops after a while", () => {
  const { arrivals, pass } = setUp();
  arrivals.add("token", [entry("ann\n\u202egnp")]);
  expect(arrivals.shown).toEqual([{ text: "New token", name: "ann gnp" }]);
  expect([...arrivals.marked]).toEqual(["id of ann\n\u202egnp"]);
  pass(MARKED_MS);
  expect([arrivals.shown, arrivals.marked.size]).toEqual([[], 0]);
});

it("says one sentence about everything that arrives meanwhile, however much that is", () => {
  const { arrivals, pass } = setUp();
  const sentences: unknown[] = [];
  for (let second = 0; second < 20; second += 1) {
    for (let count = 0; count < 50; count += 1) arrivals.add("node", [entry(`gpu-${second}-${count}`)]);
    if (second === 3) arrivals.add("workload", [entry("train")]);
    if (arrivals.shown !== sentences.at(-1)) sentences.push(arrivals.shown);
    pass(1_000);
  }
  expect(sentences.length).toBeLessThanOrEqual(1 + 20_000 / PAUSE_MS);
  expect(sentences.slice(0, 2)).toEqual([
    [{ text: "New node", name: "gpu-0-0" }],
    [{ text: "249 new nodes" }, { text: "New workload", name: "train" }],
  ]);
});

it("marks each row for its own time", () => {
  const { arrivals, pass } = setUp();
  arrivals.add("node", [entry("a")]);
  pass(MARKED_MS / 2);
  arrivals.add("node", [entry("b")]);
  pass(MARKED_MS / 2);
  expect([...arrivals.marked]).toEqual(["id of b"]);
});

it("an empty addition changes nothing", () => {
  const { arrivals } = setUp();
  arrivals.add("node", []);
  expect([arrivals.count, arrivals.shown]).toEqual([0, []]);
});

it("says what arrives while a dialog is open when the last one closes", () => {
  const { arrivals, pass } = setUp();
  const closed = arrivals.hold();
  const confirmed = arrivals.hold();
  arrivals.add("node", [entry("a")]);
  arrivals.add("node", [entry("b")]);
  confirmed();
  pass(PAUSE_MS);
  expect([arrivals.shown, arrivals.marked.size], "rows are marked at once").toEqual([[], 2]);
  closed();
  pass(AFTER_DIALOG_MS);
  expect(arrivals.shown).toEqual([{ text: "2 new nodes" }]);
});

it("keeps the pause between two sentences although a dialog closes", () => {
  const { arrivals, pass } = setUp();
  arrivals.add("node", [entry("a")]);
  arrivals.add("node", [entry("b")]);
  const closed = arrivals.hold();
  pass(PAUSE_MS - 1_000);
  closed();
  expect(arrivals.shown).toEqual([{ text: "New node", name: "a" }]);
  pass(1_000);
  expect(arrivals.shown).toEqual([{ text: "New node", name: "b" }]);
});

it("says nothing on a page about the one before it", () => {
  const { arrivals, pass } = setUp();
  arrivals.add("node", [entry("a")]);
  arrivals.add("node", [entry("b")]);
  arrivals.leave();
  expect(arrivals.shown).toEqual([]);
  arrivals.add("token", [entry("c")]);
  pass(PAUSE_MS);
  expect(arrivals.shown).toEqual([{ text: "New token", name: "c" }]);
});

import { expect, it } from "vitest";

import { ProblemError } from "../api/problem";
import type { Problem } from "../api/types";
import { Reader, type Source, type Timing } from "./reader";

/** Time and ends of batches that a test moves. */
class TestTiming implements Timing {
  at = 0;
  batches: (() => void)[] = [];
  timers: { at: number; run: () => void }[] = [];

  soon(run: () => void): void {
    this.batches.push(run);
  }

  after(ms: number, run: () => void): () => void {
    const timer = { at: this.at + ms, run };
    this.timers.push(timer);
    return () => (this.timers = this.timers.filter((other) => other !== timer));
  }

  now(): number {
    return this.at;
  }

  /** Moves the time, ends a batch, runs what is due, and lets promises settle. */
  async step(ms: number): Promise<void> {
    this.at += ms;
    const due = this.timers.filter((timer) => timer.at <= this.at);
    this.timers = this.timers.filter((timer) => timer.at > this.at);
    due.forEach((timer) => timer.run());
    this.batches.splice(0).forEach((run) => run());
    for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
  }
}

function setUp(source: Partial<Source<number[]>> = {}) {
  const timing = new TestTiming();
  const log: string[] = [];
  const values: number[][] = [];
  const reader = new Reader<number[]>(
    {
      key: "test",
      load: () => {
        log.push("load");
        return Promise.resolve([1]);
      },
      ...source,
    },
    { loaded: (value) => values.push(value), failed: () => log.push("failed"), loading: () => undefined },
    timing,
  );
  return { timing, log, values, reader };
}

it("reads once at the start, and once for any number of events of a batch", async () => {
  const { timing, log, reader } = setUp();
  reader.start();
  await timing.step(0);
  await timing.step(1_000);
  for (let count = 0; count < 5_000; count += 1) reader.touch(true);
  await timing.step(16);
  expect(log).toEqual(["load", "load"]);
});

it("paces readings under a flood of events", async () => {
  const { timing, log, reader } = setUp();
  reader.start();
  await timing.step(0);
  for (let frame = 0; frame < 60; frame += 1) {
    reader.touch(true);
    await timing.step(16);
  }
  expect(log.length).toBeGreaterThan(3);
  expect(log.length).toBeLessThan(12);
});

it("reads only touched entries if the source can", async () => {
  const asked: string[][] = [];
  const { timing, log, reader } = setUp({
    patch: (value, ids) => {
      asked.push(ids);
      return Promise.resolve(value);
    },
  });
  reader.start();
  await timing.step(0);
  await timing.step(1_000);
  reader.touch("a");
  reader.touch("b");
  await timing.step(16);
  expect(asked).toEqual([["a", "b"]]);
  expect(log).toEqual(["load"]);
});

it("reads single entries at once while events come ten times a second, and paces more of them", async () => {
  const asked: number[] = [];
  const { timing, reader } = setUp({
    patch: (value, ids) => {
      asked.push(ids.length);
      return Promise.resolve(value);
    },
  });
  reader.start();
  await timing.step(0);
  for (let event = 0; event < 50; event += 1) {
    reader.touch(`workload-${event % 9}`);
    await timing.step(100);
  }
  expect(asked).toEqual(Array.from({ length: 50 }, () => 1));
  asked.length = 0;
  for (let event = 0; event < 100; event += 1) {
    reader.touch("workload");
    await timing.step(10);
  }
  expect(asked.length).toBeLessThan(32);
});

it("tries again after a failure, and keeps what it has", async () => {
  let isDown = true;
  const { timing, log, values, reader } = setUp({
    load: () => (isDown ? Promise.reject(new Error("down")) : Promise.resolve([2])),
  });
  reader.start();
  await timing.step(0);
  await timing.step(1);
  isDown = false;
  await timing.step(5_000);
  await timing.step(200);
  expect(log).toEqual(["failed"]);
  expect(values).toEqual([[2]]);
});

it("delivers nothing after it was stopped", async () => {
  const { timing, values, reader } = setUp();
  reader.start();
  reader.stop();
  await timing.step(100);
  expect(values).toEqual([]);
});

it("reads again after the stream opened if events may be missing", async () => {
  const { timing, log, reader } = setUp();
  reader.start();
  await timing.step(0);
  await timing.step(1_000);
  reader.refreshSince(-Infinity);
  await timing.step(1_000);
  expect(log).toEqual(["load"]);
  reader.refreshSince(timing.now());
  await timing.step(1_000);
  expect(log).toEqual(["load", "load"]);
});

it("does not repeat what was refused, until an event touches it", async () => {
  let asked = 0;
  const { timing, log, reader } = setUp({
    load: () => {
      asked += 1;
      return Promise.reject(new ProblemError({ status: 404, code: "not_found" } as Problem));
    },
  });
  reader.start();
  await timing.step(0);
  await timing.step(60_000);
  await timing.step(1_000);
  expect([asked, log]).toEqual([1, ["failed"]]);
  reader.touch(true);
  await timing.step(16);
  expect(asked).toBe(2);
});

it("reads again by the clock what changes without an event, until it is stopped", async () => {
  const { timing, log, reader } = setUp({ every: 60_000 });
  reader.start();
  await timing.step(0);
  await timing.step(59_000);
  expect(log).toHaveLength(1);
  await timing.step(1_000);
  await timing.step(0);
  expect(log).toHaveLength(2);
  // A reading that an event asked for counts, too.
  await timing.step(40_000);
  reader.touch(true);
  await timing.step(16);
  await timing.step(40_000);
  expect(log).toHaveLength(3);
  reader.stop();
  await timing.step(100_000);
  expect(log).toHaveLength(3);
});

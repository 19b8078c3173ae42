import { expect, it } from "vitest";

import { Hold } from "./hold";

it("what waits continues after the hold, or is given up", async () => {
  const hold = new Hold();
  expect(await hold.over()).toBe(true);
  hold.begin();
  const waiting = hold.over();
  hold.begin();
  hold.end(true);
  expect([await waiting, hold.isOn, hold.round]).toEqual([true, false, 1]);
  hold.begin();
  const given = hold.over();
  hold.end(false);
  expect([await given, hold.round]).toEqual([false, 2]);
});

it("a request that is aborted waits no longer", async () => {
  const hold = new Hold();
  hold.begin();
  const abort = new AbortController();
  const waiting = hold.over(abort.signal);
  abort.abort();
  expect([await waiting, await hold.over(abort.signal), hold.isOn]).toEqual([false, false, true]);
});

it("a session that begins, and one that is left, is another round also without a hold", () => {
  const hold = new Hold();
  hold.end(true);
  expect([hold.round, hold.isLeft(0)]).toEqual([1, false]);
  hold.end(false);
  expect([hold.round, hold.isLeft(1), hold.isLeft(2)]).toEqual([2, true, false]);
});

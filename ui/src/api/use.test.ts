import { expect, it } from "vitest";

import { PageUse } from "./use";

it("is idle a minute after the last input", () => {
  let now = 5;
  const use = new PageUse(() => now);
  const page = new EventTarget();
  use.watch(page);
  now += 60_000;
  expect(use.isIdle).toBe(false);
  now += 1;
  expect(use.isIdle).toBe(true);
  for (const input of ["pointerdown", "keydown", "wheel"]) {
    page.dispatchEvent(new Event(input));
    expect(use.isIdle).toBe(false);
    now += 60_001;
    expect(use.isIdle).toBe(true);
  }
});

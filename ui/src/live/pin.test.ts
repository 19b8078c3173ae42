import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { pin } from "./pin";

const HEIGHT = 800;

/** A row at a distance from the top of the window. */
class Row {
  isConnected = true;

  constructor(public top: number) {}

  getBoundingClientRect(): { top: number; bottom: number } {
    return { top: this.top, bottom: this.top + 39 };
  }

  closest(): this {
    return this;
  }
}

/** The body of a table. The rows are in no order. */
function bodyOf(top: number, bottom: number, rows: Row[]) {
  return { getBoundingClientRect: () => ({ top, bottom }), querySelectorAll: () => rows };
}

let page: { focused: Row | null; pointed: Row | null; bodies: ReturnType<typeof bodyOf>[] };
const scrollBy = vi.fn();

beforeEach(() => {
  page = { focused: null, pointed: null, bodies: [] };
  scrollBy.mockReset();
  vi.stubGlobal("window", { innerHeight: HEIGHT, scrollBy });
  vi.stubGlobal("document", {
    get activeElement() {
      return page.focused;
    },
    querySelector: () => page.pointed,
    querySelectorAll: () => page.bodies,
  });
});

afterEach(() => vi.unstubAllGlobals());

/** By how much the page is scrolled after a change. */
function scrolledAfter(change: () => void): unknown {
  const restore = pin();
  change();
  restore();
  return (scrollBy.mock.calls[0] as [{ top: number }] | undefined)?.[0].top;
}

it("keeps the row with the focus where it is, before the one under the pointer", () => {
  const focused = (page.focused = new Row(300));
  page.pointed = new Row(500);
  expect(scrolledAfter(() => (focused.top += 78))).toBe(78);
});

it("keeps the row under the pointer if the focus is on none, or on one outside of the window", () => {
  const pointed = (page.pointed = new Row(500));
  expect(scrolledAfter(() => (pointed.top -= 39))).toBe(-39);
  scrollBy.mockReset();
  page.focused = new Row(HEIGHT + 1);
  expect(scrolledAfter(() => (pointed.top += 39))).toBe(39);
});

it("keeps the first row that is seen of a table that begins above the window", () => {
  const [hidden, first, second] = [new Row(-60), new Row(-21), new Row(18)];
  page.bodies = [bodyOf(-900, -300, [new Row(-400)]), bodyOf(-200, 2_000, [second, hidden, first])];
  expect(scrolledAfter(() => ((first.top += 39), (second.top += 1)))).toBe(39);
});

it("scrolls nothing while the tables begin in the window", () => {
  const row = new Row(120);
  page.bodies = [bodyOf(100, 2_000, [row])];
  expect(scrolledAfter(() => (row.top += 39))).toBeUndefined();
});

it("scrolls nothing for a row that stayed, went away, or whose element shows another one", () => {
  const row = (page.pointed = new Row(300));
  expect(scrolledAfter(() => undefined)).toBeUndefined();
  expect(scrolledAfter(() => (row.top += HEIGHT + 1))).toBeUndefined();
  row.top = 300;
  expect(scrolledAfter(() => ((row.top = 400), (row.isConnected = false)))).toBeUndefined();
});

it("does nothing without a document", () => {
  vi.unstubAllGlobals();
  expect(() => pin()()).not.toThrow();
});

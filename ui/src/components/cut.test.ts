import { expect, it } from "vitest";

import { CutCells } from "./cut";
import type { Line } from "./rows";

function cellOf(name: string, contentWidth: number, measured: string[]) {
  return {
    isCut: false,
    clientWidth: 100,
    get scrollWidth() {
      measured.push(name);
      return contentWidth;
    },
    toggleAttribute(_: string, isCut: boolean) {
      this.isCut = isCut;
    },
  };
}

it("measures rows that changed, and all of them in a table of another width", () => {
  const measures: string[] = [];
  const cells = [cellOf("fits", 100, measures), cellOf("cut", 180, measures)];
  const body = {
    querySelector: (selector: string) => {
      const cell = cells[Number(/\d+/.exec(selector)?.[0])];
      return cell === undefined ? null : { cells: [cell] };
    },
  } as unknown as HTMLTableSectionElement;
  const lines: Line<string>[] = ["a", "b"].map((row, index) => ({ slot: index, row, index }));
  const cut = new CutCells<string>();
  cut.mark(body, lines, 800);
  expect(cells.map(({ isCut }) => isCut)).toEqual([false, true]);
  cut.mark(body, lines, 800);
  expect(measures).toEqual(["fits", "cut"]);
  cut.mark(body, [{ slot: 0, row: "c", index: 7 }, ...lines.slice(1)], 800);
  expect(measures).toEqual(["fits", "cut", "fits"]);
  cut.mark(body, lines, 900);
  expect(measures).toHaveLength(5);
});

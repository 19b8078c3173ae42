import { expect, test } from "vitest";

import { bytes } from "./bytes";

test("sizes are shown in the largest unit", () => {
  expect([0, 1023, 1024, 1536, 70 * 2 ** 20, 2 ** 41].map(bytes)).toEqual([
    "0 B",
    "1023 B",
    "1 KiB",
    "1.5 KiB",
    "70 MiB",
    "2 TiB",
  ]);
});

test("more than the largest unit stays in it", () => {
  expect(bytes(2 ** 65)).toBe("32768 PiB");
});

import { expect, test } from "vitest";

import { parseLabels } from "./labels";

test("labels are read from lines and commas", () => {
  expect(parseLabels("rack=b12, gpu=h100\n\nnote=a=b")).toEqual({
    labels: { rack: "b12", gpu: "h100", note: "a=b" },
    wrong: [],
  });
});

test("a part without a key is named", () => {
  expect(parseLabels("rack, =x")).toEqual({ labels: {}, wrong: ["rack", "=x"] });
});

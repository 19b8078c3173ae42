import { expect, test } from "vitest";

import { parseLabels } from "./labels";

test("each line is a label, and its value is kept as it is typed", () => {
  expect(parseLabels("rack=b12\n\n gpu = h100 \r\nnote=a=b, c=d")).toEqual({
    labels: { rack: "b12", gpu: "h100", note: "a=b, c=d" },
    wrong: [],
  });
});

test("a line without a key or a value's sign is named", () => {
  expect(parseLabels("rack\n=x\ngpu=")).toEqual({ labels: { gpu: "" }, wrong: ["rack", "=x"] });
});

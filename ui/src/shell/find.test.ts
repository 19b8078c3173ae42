import { expect, it } from "vitest";

import { find } from "./find";

const THINGS = ["retrain", "train", "training"].map((name) => ({ kind: "workload", name, path: `/workloads/${name}` }));

it("ranks names that begin with the text, short ones first", () => {
  expect(find(THINGS, "Train").map(({ name }) => name)).toEqual(["train", "training", "retrain"]);
  expect(find(THINGS, " ")).toEqual([]);
});

it("offers an id as an operation", () => {
  expect(find([], "0198c0de-7a3b-7c11-9b54-0242ac120002")[0]?.path).toBe(
    "/operations/0198c0de-7a3b-7c11-9b54-0242ac120002",
  );
});

import { expect, it } from "vitest";

import type { Problem } from "../api/types";
import { entryOf, errorTexts, isShownBy, notShownBy } from "./refusals";

const PROBLEM: Problem = {
  type: "/docs/errors/placement_invalid",
  title: "",
  status: 422,
  code: "placement_invalid",
  detail: "the placement is refused",
  correlation_id: "c",
  errors: [
    { field: "server_allocation_id", code: "a", detail: "gpu-1 is already used", next: "choose another" },
    { field: "agent_allocation_ids[1]", code: "b", detail: "gpu-2 is unreachable" },
    { field: "parameters.member", code: "c", detail: "this is required" },
    { field: "node_labels.rack", code: "d", detail: "this must be a string" },
  ],
};

it("each error is at its field, with the part that it is about", () => {
  expect(errorTexts(PROBLEM, "server_allocation_id")).toEqual(["gpu-1 is already used. Choose another"]);
  expect(errorTexts(PROBLEM, "agent_allocation_ids")).toEqual(["entry 2: gpu-2 is unreachable"]);
  expect(errorTexts(PROBLEM, "member")).toEqual(["this is required"]);
  expect(errorTexts(PROBLEM, "node_labels")).toEqual(["rack: this must be a string"]);
  expect(errorTexts(PROBLEM, "agent")).toEqual([]);
  expect(entryOf("agent_allocation_ids[1]", "agent_allocation_ids")).toBe(1);
});

it("a problem without single errors is at its own field", () => {
  const { errors: _, ...own } = { ...PROBLEM, field: "name", detail: "train exists" };
  expect(errorTexts(own, "name")).toEqual(["train exists"]);
  expect(isShownBy(own, ["name"])).toBe(true);
  expect(isShownBy(own, ["version"])).toBe(false);
});

it("what no field shows is left for the box", () => {
  const keys = ["server_allocation_id", "agent_allocation_ids", "member"];
  expect(notShownBy(PROBLEM, keys).map(({ field }) => field)).toEqual(["node_labels.rack"]);
  expect(isShownBy(PROBLEM, keys)).toBe(false);
  expect(isShownBy(PROBLEM, [...keys, "node_labels"])).toBe(true);
});

import { expect, it } from "vitest";

import type { Problem } from "../api/types";
import { entryOf, errorText, isShownAtFields, namesShown } from "./refusals";

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
  expect(errorText(PROBLEM, "server_allocation_id")).toBe("gpu-1 is already used. Choose another");
  expect(errorText(PROBLEM, "agent_allocation_ids")).toBe("entry 2: gpu-2 is unreachable");
  expect(errorText(PROBLEM, "member")).toBe("this is required");
  expect(errorText(PROBLEM, "node_labels")).toBe("rack: this must be a string");
  expect(errorText(PROBLEM, "agent")).toBeUndefined();
  expect(entryOf("agent_allocation_ids[1]", "agent_allocation_ids")).toBe(1);
});

it("a problem without single errors is at its own field", () => {
  const { errors: _, ...own } = { ...PROBLEM, field: "name", detail: "train exists" };
  expect(errorText(own, "name")).toBe("train exists");
  expect(isShownAtFields(own, ["name"])).toBe(true);
  expect(isShownAtFields(own, ["version"])).toBe(false);
});

it("what no field shows is left for the box", () => {
  const keys = ["server_allocation_id", "agent_allocation_ids", "member"];
  expect(namesShown(PROBLEM, keys)).toHaveLength(3);
  expect(isShownAtFields(PROBLEM, keys)).toBe(false);
  expect(isShownAtFields(PROBLEM, [...keys, "node_labels"])).toBe(true);
});

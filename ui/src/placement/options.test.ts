import { expect, it } from "vitest";

import type { PlacementOption } from "../api/types";
import { fieldsOf } from "../schema/fields";
import { choose, inOrder } from "./options";

const FIELDS = fieldsOf({
  required: ["server_allocation_id"],
  properties: {
    agent_allocation_ids: { type: "array", items: { type: "string", format: "uuid" } },
    server_allocation_id: { type: "string", format: "uuid" },
  },
});
const [server, agents] = FIELDS;

function option(node_name: string, usable: boolean): PlacementOption {
  return { allocation: { id: node_name, node_name }, usable, reasons: [] } as unknown as PlacementOption;
}

it("usable allocations come first, each group in the order of its nodes", () => {
  const options = [option("gpu-10", true), option("gpu-1", false), option("gpu-2", true), option("cpu-1", true)];
  const names = inOrder(options, "GPU").map((found) => found.allocation.node_name);
  expect(names).toEqual(["gpu-2", "gpu-10", "gpu-1"]);
});

it("an allocation has one place", () => {
  if (server === undefined || agents === undefined) throw new Error("the schema has two fields");
  const first = choose(FIELDS, {}, agents, "a", true);
  expect(first).toEqual({ server_allocation_id: "", agent_allocation_ids: ["a"] });
  const moved = choose(FIELDS, first, server, "a", true);
  expect(moved).toEqual({ server_allocation_id: "a", agent_allocation_ids: [] });
  const more = choose(FIELDS, moved, agents, "b", true);
  expect(choose(FIELDS, more, server, "c", true)).toEqual({ server_allocation_id: "c", agent_allocation_ids: ["b"] });
  expect(choose(FIELDS, more, agents, "b", false)).toEqual(moved);
});

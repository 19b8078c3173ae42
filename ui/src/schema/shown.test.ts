import { expect, it } from "vitest";

import { shownValues } from "./shown";

const SCHEMA = {
  properties: {
    tls_san: { type: "array", items: { type: "string" } },
    node_labels: { type: "object", additionalProperties: { type: "string" } },
    timeout_seconds: { type: "integer", title: "Time limit" },
    force: { type: "boolean" },
    scope: { oneOf: [{ const: "member" }, { const: "whole_runtime" }] },
    by: { type: "string", format: "uuid" },
    reason: { type: ["string", "null"] },
  },
};

function shown(values: Parameters<typeof shownValues>[1], schema: unknown = SCHEMA): string[] {
  return shownValues(schema, values).map(({ label, text }) => `${label}: ${text}`);
}

it("values have the labels, the choices and the order of their schema", () => {
  const values = { scope: "whole_runtime", node_labels: { rack: "b12", tier: "gold" }, timeout_seconds: 90 };
  expect(shown({ ...values, tls_san: ["a", "b"] })).toEqual([
    "TLS SAN: a, b",
    "Node labels: rack=b12, tier=gold",
    "Time limit: 90",
    "Scope: Whole runtime",
  ]);
});

it("a switch that is on, and ids of allocations, say what they are", () => {
  const [force, by] = shownValues(SCHEMA, { force: true, by: "id-5" });
  expect([force?.isFlag, force?.text]).toEqual([true, "yes"]);
  expect(by?.allocations).toEqual(["id-5"]);
  expect(shown({ force: false })).toEqual(["Force: no"]);
});

it("nothing is lost without a schema, and nothing empty is shown", () => {
  expect(shown({ member: "agent-2", deep: { a: [1, true] }, none: [], gone: null, text: "" }, undefined)).toEqual([
    "Member: agent-2",
    "Deep: a=1, yes",
  ]);
  expect(shown(undefined)).toEqual([]);
});

it("text of a person stays text in one line", () => {
  expect(shown({ reason: "it\nburnt \u001b[31mdown\u202e" })).toEqual(["Reason: it burnt down"]);
});

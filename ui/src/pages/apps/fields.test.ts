import { expect, test } from "vitest";

import { fieldsOf } from "./fields";

test("fields have their types in words", () => {
  const schema = {
    type: "object",
    required: ["server"],
    properties: {
      server: { type: "string", description: "Allocation of the server." },
      tls_san: { type: "array", items: { type: "string" } },
      node_labels: { type: "object", additionalProperties: { type: "string" } },
      cluster_cidr: { type: ["string", "null"] },
      cni: { enum: ["canal"] },
    },
  };
  expect(fieldsOf(schema).map(({ name, type, required }) => [name, type, required])).toEqual([
    ["server", "text", true],
    ["tls_san", "list of text", false],
    ["node_labels", "names with values", false],
    ["cluster_cidr", "text", false],
    ["cni", "one of canal", false],
  ]);
});

test("a schema without fields has no rows", () => {
  expect([fieldsOf(undefined), fieldsOf(true), fieldsOf({})]).toEqual([[], [], []]);
});

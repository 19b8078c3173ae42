import { expect, it } from "vitest";

import { fieldsOf, labelOf } from "./fields";
import { missingFields, shownFields, valueOf } from "./values";

const SCHEMA = {
  type: "object",
  required: ["scope", "server_allocation_id"],
  properties: {
    server_allocation_id: { type: "string", format: "uuid", description: "Allocation of the server." },
    agent_allocation_ids: { type: "array", items: { type: "string", format: "uuid" } },
    cluster_cidr: { type: ["string", "null"], maxLength: 43 },
    tls_san: { type: "array", items: { type: "string" } },
    node_labels: { type: "object", additionalProperties: { type: "string" } },
    timeout_seconds: { type: "integer", minimum: 1, maximum: 86_400 },
    force: { type: "boolean" },
    member: { type: ["string", "null"] },
    scope: { oneOf: [{ const: "member", description: "One member." }, { const: "whole_runtime" }] },
    shape: { type: "object", properties: { a: { type: "string" } } },
  },
};

it("every property of a schema becomes a control", () => {
  const kinds = Object.fromEntries(fieldsOf(SCHEMA).map((field) => [field.key, field.kind]));
  expect(kinds).toEqual({
    server_allocation_id: "allocation",
    agent_allocation_ids: "allocations",
    cluster_cidr: "text",
    tls_san: "list",
    node_labels: "pairs",
    timeout_seconds: "number",
    force: "flag",
    member: "text",
    scope: "choice",
    shape: "json",
  });
  expect(fieldsOf(undefined)).toEqual([]);
});

it("labels are words", () => {
  expect(["tls_san", "force", "server_allocation_id"].map((key) => labelOf(key))).toEqual([
    "TLS SAN",
    "Force",
    "Server",
  ]);
  expect(labelOf("agent_allocation_ids", true)).toBe("Agents");
});

it("a draft becomes the JSON that it means, without empty fields", () => {
  const draft = {
    server_allocation_id: "a",
    agent_allocation_ids: ["b", "c"],
    cluster_cidr: "",
    tls_san: " k8s.example \n\n10.0.0.1",
    node_labels: "rack=b12\nzone = a=b",
    timeout_seconds: "90",
    force: false,
    scope: "whole_runtime",
    member: "agent-1",
    shape: '{"a":"b"}',
  };
  expect(valueOf(fieldsOf(SCHEMA), draft)).toEqual({
    errors: {},
    value: {
      server_allocation_id: "a",
      agent_allocation_ids: ["b", "c"],
      tls_san: ["k8s.example", "10.0.0.1"],
      node_labels: { rack: "b12", zone: "a=b" },
      timeout_seconds: 90,
      scope: "whole_runtime",
      shape: { a: "b" },
    },
  });
});

it("text that cannot be sent is refused at its field", () => {
  const { errors } = valueOf(fieldsOf(SCHEMA), { timeout_seconds: "soon", node_labels: "rack", shape: "{" });
  expect(Object.keys(errors).sort()).toEqual(["node_labels", "shape", "timeout_seconds"]);
});

it("a field that bears the name of a choice belongs to it", () => {
  const fields = fieldsOf(SCHEMA);
  const isShown = (scope: string): boolean => shownFields(fields, { scope }).some((field) => field.key === "member");
  expect([isShown("member"), isShown("whole_runtime")]).toEqual([true, false]);
});

it("required fields without a value are missing, also one that belongs to the choice that was made", () => {
  const missing = missingFields(fieldsOf(SCHEMA), { scope: "member" }).map((field) => field.key);
  expect(missing).toEqual(["server_allocation_id", "member"]);
});

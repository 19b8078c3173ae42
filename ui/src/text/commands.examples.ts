//! Examples of the lines that functions compute from schemas and from many parameters, for the list of all lines.

import { readFileSync } from "node:fs";

import { accessLine } from "../access/choices";
import type { AccessKind, App } from "../api/types";
import { commandOf } from "../pages/audit/filter";
import { actionLine } from "../pages/workload/action-line";
import { fieldsFor, type Terms } from "../pages/workload/terms";
import { fieldsOf, type Json, type JsonObject, type SchemaField } from "../schema/fields";
import { deployLine, placementFlags } from "./app-command";

const NODE = "gpu-1";
const ALLOCATION = "id-1";
const NODES = new Map([[ALLOCATION, NODE]]);
const DIGEST = "plan-9f86d081";

interface Schema {
  $ref?: string;
  properties?: Record<string, Schema>;
  discriminator?: { mapping: Record<string, string> };
}

/** The schemas of the API's document. */
const { schemas } = (
  JSON.parse(readFileSync(new URL("../../../docs/openapi.json", import.meta.url), "utf8")) as {
    components: { schemas: Record<string, Schema> };
  }
).components;

function schemaOf(reference: string | undefined): Schema {
  return schemas[reference?.split("/").at(-1) ?? ""] ?? {};
}

/** The app of the API's document, with the operations that it has. */
const APP = {
  added_members_schema: schemas["Rke2AddedMembers"],
  operations: Object.entries(schemas["Rke2StartOperation"]?.discriminator?.mapping ?? {}).map(([kind, request]) => ({
    kind,
    available: true,
    parameters_schema: schemaOf(schemaOf(request).properties?.["parameters"]?.$ref),
  })),
  versions: ["v1.36.3+rke2r1"],
} as unknown as App;

function valueFor(field: SchemaField): Json {
  switch (field.kind) {
    case "number":
      return field.minimum ?? 1;
    case "flag":
      return true;
    case "choice":
      return field.choices.at(-1)?.value ?? "x";
    case "list":
      return [NODE];
    case "allocation":
      return ALLOCATION;
    case "allocations":
      return [ALLOCATION];
    default:
      return "x";
  }
}

function filled(fields: readonly SchemaField[]): JsonObject {
  return Object.fromEntries(fields.map((field) => [field.key, valueFor(field)]));
}

/** The action with what it must have, and with everything that it can have. */
function linesOfAction(kind: Terms["kind"]): string[] {
  const fields = fieldsFor(kind, APP, []);
  const terms = { kind, id: "w-1", workload: "train", app: "rke2", project: "ml" };
  return [fields.filter((field) => field.required), fields].map((given) =>
    actionLine({ ...terms, parameters: filled(given) }, fields, NODES, DIGEST),
  );
}

function deployLines(): string[] {
  const fields = fieldsOf(schemas["Rke2Placement"]);
  const placement = placementFlags(fields, filled(fields), NODES);
  const line = { app: "rke2", name: "", version: undefined, placement: [], config: {}, digest: undefined };
  return [
    deployLine(line),
    deployLine({ ...line, name: "train", version: "v1", placement, config: { tls_san: ["k8s"] }, digest: DIGEST }),
  ];
}

function accessLines(): string[] {
  const usual = { name: "direct", default: true } as AccessKind;
  const exception = { name: "break-glass", default: false } as AccessKind;
  const terms = { workload: "train", kind: usual, role: "cluster-admin", ttlSeconds: 28_800, reason: "" };
  return [accessLine(terms, true), accessLine({ ...terms, role: undefined, kind: exception }, false)];
}

function auditLine(): string {
  const time = "2026-07-01T12:00:00Z";
  const what = { actor: "ann", target: "node/gpu-1", action: "node.register", result: "refused" };
  return commandOf({ ...what, workload: "train", correlation: "c-1", since: time, until: time }, "ml");
}

/** The lines by the file that computes them. */
export function computedLines(): Record<string, string[]> {
  const kinds = ["add_member", "decommission", "resume", ...(APP.operations ?? []).map(({ kind }) => kind)];
  return {
    "access/choices.ts": accessLines(),
    "pages/audit/filter.ts": [auditLine()],
    "pages/workload/action-line.ts": (kinds as Terms["kind"][]).flatMap(linesOfAction),
    "text/app-command.ts": deployLines(),
  };
}

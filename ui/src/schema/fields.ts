//! Reads the JSON Schemas of an app's manifest as fields of a form.
//!
//! Guarantees: every property of a schema becomes one field. A shape that no control fits becomes a field for JSON text, so that nothing of a
//! schema is out of reach.

import { oneLine, sentenceCase, words } from "../text/plain";

export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [key: string]: Json;
}

export interface Choice {
  value: string;
  label: string;
  hint?: string;
}

export type Control =
  | { kind: "text" }
  | { kind: "number"; minimum?: number; maximum?: number }
  | { kind: "flag" }
  | { kind: "choice"; choices: readonly Choice[] }
  /** Texts, one a line. */
  | { kind: "list" }
  /** Texts by name, `name=value`, one a line. */
  | { kind: "pairs" }
  /** One allocation. */
  | { kind: "allocation" }
  | { kind: "allocations" }
  | { kind: "json" };

export type SchemaField = Control & {
  key: string;
  label: string;
  hint: string | undefined;
  required: boolean;
};

/** The fields of an object's schema: the required ones first, otherwise in its order. */
export function fieldsOf(schema: unknown): SchemaField[] {
  const object = record(schema);
  const required = Array.isArray(object["required"]) ? object["required"] : [];
  const fields = Object.entries(record(object["properties"])).map(([key, property]): SchemaField => {
    const control = controlOf(record(property));
    return {
      ...control,
      key,
      label: shownText(record(property), "title") ?? labelOf(key, control.kind === "allocations"),
      hint: shownText(record(property), "description")?.replaceAll("`", ""),
      required: required.includes(key),
    };
  });
  return [...fields.filter((field) => field.required), ...fields.filter((field) => !field.required)];
}

function controlOf(schema: Record<string, unknown>): Control {
  const choices = choicesOf(schema);
  if (choices !== undefined) return { kind: "choice", choices };
  switch (typeOf(schema)) {
    case "boolean":
      return { kind: "flag" };
    case "integer":
    case "number":
      return { kind: "number", ...numberOf(schema, "minimum"), ...numberOf(schema, "maximum") };
    case "string":
      // The ids that a tenant gives to an app are those of allocations.
      return schema["format"] === "uuid" ? { kind: "allocation" } : { kind: "text" };
    case "array":
      return arrayControl(record(schema["items"]));
    case "object":
      return isMapOfTexts(schema) ? { kind: "pairs" } : { kind: "json" };
    default:
      return { kind: "json" };
  }
}

function arrayControl(items: Record<string, unknown>): Control {
  if (typeOf(items) !== "string") return { kind: "json" };
  return items["format"] === "uuid" ? { kind: "allocations" } : { kind: "list" };
}

function isMapOfTexts(schema: Record<string, unknown>): boolean {
  return schema["properties"] === undefined && typeOf(record(schema["additionalProperties"])) === "string";
}

/** The values of an enumeration: `enum`, or `oneOf` with a constant and a description each. */
function choicesOf(schema: Record<string, unknown>): Choice[] | undefined {
  const { enum: values, oneOf } = schema;
  if (Array.isArray(values) && values.every((value) => typeof value === "string" || value === null))
    return values.flatMap((value) => (typeof value === "string" ? [{ value, label: sentenceCase(words(value)) }] : []));
  if (!Array.isArray(oneOf)) return undefined;
  const choices = oneOf.map(record).flatMap((option) => {
    const value = textOf(option, "const");
    const hint = shownText(option, "description");
    return value === undefined ? [] : [{ value, label: sentenceCase(words(value)), ...(hint && { hint }) }];
  });
  const others = oneOf.map(record).filter((option) => option["const"] === undefined && option["type"] !== "null");
  return choices.length > 0 && others.length === 0 ? choices : undefined;
}

/** The type of a schema, without `null`. */
function typeOf(schema: Record<string, unknown>): unknown {
  const { type } = schema;
  return Array.isArray(type) ? type.find((name) => name !== "null") : type;
}

const ACRONYMS = new Set(["api", "cidr", "dns", "gpu", "id", "ip", "san", "tls", "ttl", "url"]);

/** `tls_san` as `TLS SAN`, `agent_allocation_ids` as `Agents`. */
export function labelOf(key: string, isPlural = false): string {
  const name = key.replace(/_allocation_ids?$/, "");
  const text = name
    .split("_")
    .map((word) => (ACRONYMS.has(word) ? word.toUpperCase() : word))
    .join(" ");
  return sentenceCase(isPlural && name !== key ? `${text}s` : text);
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

function textOf(schema: Record<string, unknown>, name: string): string | undefined {
  const value = schema[name];
  return typeof value === "string" ? value : undefined;
}

/** A text that a manifest has for people. */
function shownText(schema: Record<string, unknown>, name: string): string | undefined {
  const text = textOf(schema, name);
  return text === undefined ? undefined : oneLine(text);
}

function numberOf<Name extends string>(schema: Record<string, unknown>, name: Name): Partial<Record<Name, number>> {
  const value = schema[name];
  return typeof value === "number" ? ({ [name]: value } as Record<Name, number>) : {};
}

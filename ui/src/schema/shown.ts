//! Values as a page shows them: in the order and with the labels of the schema that describes them.

import { oneLine } from "../text/plain";
import { type Choice, fieldsOf, type Json, type JsonObject, labelOf, type SchemaField } from "./fields";

export interface ShownValue {
  key: string;
  label: string;
  text: string;
  /** True for a switch: that it is on says everything. */
  isFlag: boolean;
  /** Ids of allocations, instead of a text. */
  allocations: readonly string[];
}

/** Every value that is set; one that the schema does not describe comes last. */
export function shownValues(schema: unknown, values: JsonObject | undefined): ShownValue[] {
  const fields = fieldsOf(schema);
  const known = new Set(fields.map((field) => field.key));
  const others = Object.keys(values ?? {}).filter((key) => !known.has(key));
  const shown: Described[] = [...fields, ...others.map((key) => ({ key, label: labelOf(key), kind: "json" as const }))];
  return shown.flatMap((field) => {
    const value = values?.[field.key];
    return value === undefined || isEmpty(value) ? [] : [shownValue(field, value)];
  });
}

interface Described {
  key: string;
  label: string;
  kind: SchemaField["kind"];
  choices?: readonly Choice[];
}

function shownValue(field: Described, value: Json): ShownValue {
  const { key, label, kind } = field;
  const isOfAllocations = kind === "allocation" || kind === "allocations";
  const allocations = isOfAllocations ? (Array.isArray(value) ? value : [value]).filter(isText) : [];
  return { key, label, text: textOf(field, value), isFlag: kind === "flag" && value === true, allocations };
}

function isText(value: Json): value is string {
  return typeof value === "string";
}

function textOf(field: Described, value: Json): string {
  return field.choices?.find((choice) => choice.value === value)?.label ?? plainText(value);
}

function plainText(value: Json): string {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(plainText).join(", ");
  if (typeof value === "object" && value !== null)
    return Object.entries(value)
      .map(([name, of]) => `${oneLine(name)}=${plainText(of)}`)
      .join(", ");
  return oneLine(String(value));
}

function isEmpty(value: Json): boolean {
  if (value === null || value === "") return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

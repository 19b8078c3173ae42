//! What a person has entered into the fields of a schema, and the JSON that it means.

import type { Json, JsonObject, SchemaField } from "./fields";

/** Entered values by field: text of a control, a switch, or ids of allocations. */
export type Draft = Record<string, string | boolean | readonly string[]>;

export interface Parsed {
  value: JsonObject;
  /** By field, why its text cannot be sent. */
  errors: Record<string, string>;
}

/** The JSON object of a draft. Empty fields are left out, so that the app's defaults and its own refusals apply. */
export function valueOf(fields: readonly SchemaField[], draft: Draft): Parsed {
  const parsed: Parsed = { value: {}, errors: {} };
  for (const field of shownFields(fields, draft)) {
    const read = readField(field, draft[field.key]);
    if (read.error !== undefined) parsed.errors[field.key] = read.error;
    else if (read.value !== undefined) parsed.value[field.key] = read.value;
  }
  return parsed;
}

/**
 * The fields that apply. An optional field that bears the name of another field's choice belongs to that choice: `member` is shown if
 * `scope` is `member`.
 */
export function shownFields(fields: readonly SchemaField[], draft: Draft): SchemaField[] {
  return fields.flatMap((field) => {
    const owner = fields.find(
      (other) => other.kind === "choice" && other.choices.some(({ value }) => value === field.key),
    );
    if (field.required || owner === undefined) return [field];
    // The choice means nothing without it.
    return draft[owner.key] === field.key ? [{ ...field, required: true }] : [];
  });
}

/** The required fields that are empty. */
export function missingFields(fields: readonly SchemaField[], draft: Draft): SchemaField[] {
  return shownFields(fields, draft).filter((field) => {
    const entered = draft[field.key];
    return field.required && (entered === undefined || entered === "" || (Array.isArray(entered) && !entered.length));
  });
}

interface ReadField {
  value?: Json;
  error?: string;
}

function readField(field: SchemaField, entered: Draft[string] | undefined): ReadField {
  if (entered === undefined || entered === false || entered === "") return {};
  if (entered === true) return { value: true };
  if (typeof entered !== "string") return entered.length === 0 ? {} : { value: [...entered] };
  switch (field.kind) {
    case "number":
      return Number.isFinite(Number(entered)) ? { value: Number(entered) } : { error: "This must be a number" };
    case "list":
      return unlessEmpty(linesOf(entered));
    case "pairs":
      return readPairs(linesOf(entered));
    case "json":
      return readJson(entered);
    default:
      return { value: entered };
  }
}

function linesOf(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

function unlessEmpty(lines: string[]): ReadField {
  return lines.length === 0 ? {} : { value: lines };
}

function readPairs(lines: string[]): ReadField {
  const wrong = lines.find((line) => line.indexOf("=") < 1);
  if (wrong !== undefined) return { error: `Write name=value, one a line: ${wrong}` };
  if (lines.length === 0) return {};
  const pairs = lines.map((line) => {
    const at = line.indexOf("=");
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()] as const;
  });
  return { value: Object.fromEntries(pairs) };
}

function readJson(text: string): ReadField {
  try {
    return { value: JSON.parse(text) as Json };
  } catch {
    return { error: "This must be JSON" };
  }
}

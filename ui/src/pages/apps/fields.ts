//! What a JSON Schema says about the settings of an app, in rows.

export interface SchemaField {
  name: string;
  /** The type in words, for example `list of text`. */
  type: string;
  description: string;
  required: boolean;
}

interface Schema {
  type?: string | string[];
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  additionalProperties?: Schema | boolean;
  enum?: unknown[];
}

/** The fields of an object's schema, in its order. */
export function fieldsOf(schema: unknown): SchemaField[] {
  if (!isSchema(schema)) return [];
  const required = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {}).map(([name, field]) => ({
    name,
    type: typeOf(field),
    description: field.description ?? "",
    required: required.has(name),
  }));
}

const WORDS: Record<string, string> = { string: "text", integer: "number", number: "number", boolean: "yes or no" };

function typeOf(schema: Schema): string {
  if (schema.enum) return `one of ${schema.enum.map(String).join(", ")}`;
  const [type] = [schema.type].flat().filter((name) => name !== "null");
  if (type === "array") return `list of ${schema.items ? typeOf(schema.items) : "values"}`;
  if (type === "object") return typeof schema.additionalProperties === "object" ? "names with values" : "group";
  return type === undefined ? "value" : (WORDS[type] ?? type);
}

function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null;
}

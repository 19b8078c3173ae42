//! The line of the command line program that does the same as an action's dialog.

import type { Json, JsonObject, SchemaField } from "../../schema/fields";
import { digestFlag, placementFlags } from "../../text/app-command";
import { commandLine } from "../../text/command";
import type { Terms } from "./terms";

/** How the verbs of the program take parameters. An action with another parameter is shown as `gpuaas operation start`. */
const FLAGS: Record<string, (value: Json, nodes: ReadonlyMap<string, string>) => string[]> = {
  by: (value, nodes) => ["--by", nodes.get(String(value)) ?? String(value)],
  delete_empty_dir_data: (value) => (value === true ? ["--delete-emptydir-data"] : []),
  force: (value) => (value === true ? ["--force"] : []),
  give_up: (value) => (Array.isArray(value) ? value.flatMap((node) => ["--give-up", String(node)]) : ["--give-up"]),
  member: (value) => ["--member", String(value)],
  reason: (value) => ["--reason", String(value)],
  scope: (value) => ["--scope", String(value).replaceAll("_", "-")],
  timeout_seconds: (value) => ["--drain-timeout", `${String(value)}s`],
};

/** Kinds with a verb of their own below `gpuaas workload`. */
const VERBS = new Set<Terms["kind"]>([
  "add_member",
  "decommission",
  "drain_member",
  "reconcile",
  "remove_member",
  "repair",
  "replace_member",
  "resume",
  "start",
  "stop",
  "uncordon_member",
]);

export function actionLine(
  terms: Terms,
  fields: readonly SchemaField[],
  nodes: ReadonlyMap<string, string>,
  digest: string | undefined,
): string {
  const { kind, workload, parameters } = terms;
  const rest = digestFlag(digest);
  const verb = kind.replaceAll("_", "-");
  if (kind === "add_member")
    return commandLine("workload", verb, workload, ...placementFlags(fields, parameters, nodes), ...rest);
  const isKnown = VERBS.has(kind) && Object.keys(parameters).every((name) => name in FLAGS);
  return isKnown
    ? commandLine("workload", verb, workload, ...flagsOf(terms, nodes), ...rest)
    : commandLine("operation", "start", workload, kind, ...generic(parameters), ...rest);
}

function flagsOf({ kind, parameters }: Terms, nodes: ReadonlyMap<string, string>): string[] {
  const { member, ...others } = parameters;
  // Verbs about one member take it as their second argument.
  const isArgument = kind.endsWith("_member");
  const named = isArgument || member === undefined ? others : { ...others, member };
  const flags = Object.entries(named).flatMap(([name, value]) => FLAGS[name]?.(value, nodes) ?? []);
  return isArgument ? [typeof member === "string" ? member : "MEMBER", ...flags] : flags;
}

function generic(parameters: JsonObject): string[] {
  return Object.entries(parameters).flatMap(([name, value]) => [
    "--parameter",
    `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`,
  ]);
}

//! Lines of the command line program for requests whose shape an app's schemas define.

import type { JsonObject, SchemaField } from "../schema/fields";
import { commandLine } from "./command";

/** Flags for the members of a placement: `agent_allocation_ids` becomes `--agent NODE`, once for each. */
export function placementFlags(
  fields: readonly SchemaField[],
  placement: JsonObject,
  nodes: ReadonlyMap<string, string>,
): string[] {
  return fields.flatMap((field) => {
    const value = placement[field.key];
    const ids = Array.isArray(value) ? value : value === undefined ? [] : [value];
    const flag = `--${field.key.replace(/_allocation_ids?$/, "").replaceAll("_", "-")}`;
    return ids.flatMap((id) => [flag, nodes.get(String(id)) ?? String(id)]);
  });
}

export interface DeployLine {
  app: string;
  name: string;
  version: string | undefined;
  placement: string[];
  config: JsonObject;
  digest: string | undefined;
}

/** `gpuaas workload deploy …`, which runs exactly the shown plan if `digest` is given. */
export function deployLine(line: DeployLine): string {
  return commandLine(
    "workload",
    "deploy",
    line.app,
    "--name",
    line.name === "" ? "NAME" : line.name,
    ...line.placement,
    ...(line.version ? ["--version", line.version] : []),
    ...(Object.keys(line.config).length > 0 ? ["--config", JSON.stringify(line.config)] : []),
    ...digestFlag(line.digest),
  );
}

export function digestFlag(digest: string | undefined): string[] {
  return digest === undefined ? [] : ["--plan-digest", digest];
}

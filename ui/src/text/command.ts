//! Lines of the command line program: composed to be copied, and read to offer the same action as a button.

import type { WorkloadAction } from "../api/types";

/** Quotes an argument for a POSIX shell if it needs that. */
export function quoted(argument: string): string {
  return /^[A-Za-z0-9@%+=:,./_-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`;
}

/** `gpuaas workload show train`, with every argument quoted where needed. */
export function commandLine(...args: string[]): string {
  return ["gpuaas", ...args].map(quoted).join(" ");
}

/** Nouns of things that belong to a project. */
const OF_PROJECT = new Set(["allocation", "event", "operation", "service-account", "workload"]);
/** Their verbs that take an id, which means the same in every project. */
const BY_ID = new Set([
  "allocation release",
  "allocation show",
  "operation cancel",
  "operation show",
  "operation watch",
  "workload revoke-access",
]);

/**
 * The line with `--project` before its first flag, if it lists things of a project or names one, and names no project yet: a name has no
 * meaning for a token that belongs to no project. `project` is `undefined` if the token belongs to one.
 */
export function inProject(line: string, project: string | undefined): string {
  // The words before the first flag and the first that is quoted.
  const begun = /^gpuaas(?: [^\s'>-][^\s'>]*)+/.exec(line)?.[0] ?? "";
  const [, noun = "", verb = ""] = begun.split(" ");
  const isAbout = OF_PROJECT.has(noun) && !BY_ID.has(`${noun} ${verb}`);
  if (project === undefined || !isAbout || / --(?:project|help)\b/.test(line)) return line;
  return `${begun} --project ${quoted(project)}${line.slice(begun.length)}`;
}

/** An action on a workload: a kind of operation, `resume` of the newest one, or `cancel` of the open one. */
export type ActionKind = WorkloadAction;

export interface NextAction {
  kind: ActionKind;
  member?: string;
  scope?: string;
}

const VERBS: Record<string, ActionKind> = {
  "add-member": "add_member",
  decommission: "decommission",
  "drain-member": "drain_member",
  reconcile: "reconcile",
  "remove-member": "remove_member",
  repair: "repair",
  "replace-member": "replace_member",
  restore: "restore",
  resume: "resume",
  start: "start",
  stop: "stop",
  "uncordon-member": "uncordon_member",
  upgrade: "upgrade",
};

/** The action of a line such as `gpuaas workload repair train --scope member --member agent-2`; `undefined` for lines that change nothing. */
export function actionOf(command: string | null | undefined): NextAction | undefined {
  const [program, noun, verb, ...rest] = (command ?? "").trim().split(/\s+/);
  const kind = program === "gpuaas" && noun === "workload" && verb !== undefined ? VERBS[verb] : undefined;
  if (kind === undefined) return undefined;
  const member = option(rest, "--member") ?? (kind.endsWith("_member") ? rest[1] : undefined);
  const scope = option(rest, "--scope");
  return {
    kind,
    ...(member !== undefined && isName(member) && { member }),
    ...(scope !== undefined && { scope: scope.replaceAll("-", "_") }),
  };
}

/** Whether a line releases this allocation, as `gpuaas allocation release ID` does without flags. */
export function isReleaseOf(command: string | null | undefined, allocation: string): boolean {
  const [program, noun, verb, id, ...rest] = (command ?? "").trim().split(/\s+/);
  return program === "gpuaas" && noun === "allocation" && verb === "release" && id === allocation && rest.length === 0;
}

function option(args: string[], name: string): string | undefined {
  const at = args.indexOf(name);
  return at < 0 ? undefined : args[at + 1];
}

function isName(text: string): boolean {
  return /^[a-z0-9][a-z0-9-]*$/.test(text);
}

/** A page of the shell that shows what a line of the program shows. */
export interface ShownPage {
  path: string;
  /** What opens it, in the words of a button. */
  label: string;
}

/** The lines that show one thing, and its pages. */
const PAGES: Record<string, { folder: string; tab?: string; label: string }> = {
  "allocation show": { folder: "allocations", label: "Open the allocation" },
  "node show": { folder: "nodes", label: "Open the node" },
  "operation show": { folder: "operations", label: "Open the operation" },
  "operation watch": { folder: "operations", label: "Open the operation" },
  "task show": { folder: "tasks", label: "Open the task" },
  "workload logs": { folder: "workloads", tab: "logs", label: "Open the logs" },
  "workload members": { folder: "workloads", tab: "members", label: "Open the members" },
  "workload show": { folder: "workloads", label: "Open the workload" },
};

/** The page for a line such as `gpuaas node show gpu-1`; `undefined` for lines that have flags, change something, or are no such command. */
export function pageOf(command: string | null | undefined): ShownPage | undefined {
  const [program, noun = "", verb = "", name, ...rest] = (command ?? "").trim().split(/\s+/);
  const page = program === "gpuaas" ? PAGES[`${noun} ${verb}`] : undefined;
  if (page === undefined || name === undefined || rest.length > 0 || !isName(name)) return undefined;
  return { path: ["", page.folder, name, page.tab].filter((part) => part !== undefined).join("/"), label: page.label };
}

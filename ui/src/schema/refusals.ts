//! Finds the errors of a refused request that concern a field of a form, also those about one entry of a list.

import type { Problem } from "../api/types";
import { sentenceCase } from "../text/plain";

/** The part of a field's name below `key`: `[1]` of `agent_allocation_ids[1]`; `undefined` for another field. */
function below(named: string, key: string): string | undefined {
  const bare = named.replace(/^(parameters|placement|config)\./, "");
  if (bare === key) return "";
  return bare.startsWith(`${key}[`) || bare.startsWith(`${key}.`) ? bare.slice(key.length) : undefined;
}

/** The index of the entry that a field's name is about: 1 of `agent_allocation_ids[1]`. */
export function entryOf(named: string, key: string): number | undefined {
  const index = /^\[(\d+)\]/.exec(below(named, key) ?? "")?.[1];
  return index === undefined ? undefined : Number(index);
}

export interface Refusal {
  field: string;
  text: string;
}

/** Every error about `key` or a part of it. */
export function refusalsOf(problem: Problem | undefined, key: string): Refusal[] {
  if (problem === undefined) return [];
  const inner = (problem.errors ?? []).filter((reason) => below(reason.field, key) !== undefined);
  if (inner.length > 0) return inner.map((reason) => ({ field: reason.field, text: sentence(reason) }));
  const isOwn = typeof problem.field === "string" && below(problem.field, key) !== undefined;
  return isOwn ? [{ field: problem.field ?? key, text: sentence(problem) }] : [];
}

/** The errors about `key` in one text for its field; an error about a part names the part. */
export function errorText(problem: Problem | undefined, key: string): string | undefined {
  const texts = refusalsOf(problem, key).map(({ field, text }) => {
    const entry = entryOf(field, key);
    const part = entry === undefined ? (below(field, key) ?? "").replace(/^\./, "") : `entry ${entry + 1}`;
    return part === "" ? text : `${part}: ${text}`;
  });
  return texts.length === 0 ? undefined : texts.join(". ");
}

/** Names in a problem that the fields of a form show: `ProblemBox` leaves these out. */
export function namesShown(problem: Problem | undefined, keys: readonly string[]): string[] {
  return (problem?.errors ?? [])
    .map((reason) => reason.field)
    .filter((named) => keys.some((key) => below(named, key) !== undefined));
}

/** True if fields of the form show everything that a problem says. */
export function isShownAtFields(problem: Problem, keys: readonly string[]): boolean {
  const errors = problem.errors ?? [];
  if (errors.length > 0) return namesShown(problem, keys).length === errors.length;
  return typeof problem.field === "string" && keys.some((key) => refusalsOf(problem, key).length > 0);
}

/** A next action as a sentence of its own. Lines of a command stay as they are. */
export function nextStep(next: string): string {
  return next.startsWith("gpuaas ") ? next : sentenceCase(next);
}

function sentence(reason: { detail: string; next?: string | null }): string {
  return reason.next ? `${reason.detail}. ${nextStep(reason.next)}` : reason.detail;
}

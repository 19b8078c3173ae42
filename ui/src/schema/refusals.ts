//! Finds the errors of a refused request that concern a field of a form, also those about one entry of a list.

import type { Problem, ProblemReason } from "../api/types";
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

/** The errors about `key` for its field; an error about a part names the part. */
export function errorTexts(problem: Problem | undefined, key: string): string[] {
  return refusalsOf(problem, key).map(({ field, text }) => {
    const entry = entryOf(field, key);
    const part = entry === undefined ? (below(field, key) ?? "").replace(/^\./, "") : `entry ${entry + 1}`;
    return part === "" ? text : `${part}: ${text}`;
  });
}

/** The reasons of a problem that none of these fields shows. */
export function notShownBy(problem: Problem, keys: readonly string[]): ProblemReason[] {
  return (problem.errors ?? []).filter((reason) => keys.every((key) => below(reason.field, key) === undefined));
}

/** True if these fields show everything that a problem says. */
export function isShownBy(problem: Problem, keys: readonly string[]): boolean {
  if ((problem.errors ?? []).length > 0) return notShownBy(problem, keys).length === 0;
  return typeof problem.field === "string" && keys.some((key) => refusalsOf(problem, key).length > 0);
}

/** A next action as a sentence of its own. Lines of a command stay as they are. */
export function nextStep(next: string): string {
  return next.startsWith("gpuaas ") ? next : sentenceCase(next);
}

function sentence(reason: { detail: string; next?: string | null }): string {
  return reason.next ? `${reason.detail}. ${nextStep(reason.next)}` : reason.detail;
}

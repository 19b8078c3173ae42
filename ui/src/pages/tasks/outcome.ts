//! The outcome of a task as text. Its shape depends on the task's type, and the failure comes from the node.

import { oneLine, plain } from "../../text/plain";

export interface Failure {
  code: string;
  message: string;
}

/** Longer outcomes are cut; the command line program prints all of them. */
export const OUTCOME_MAX = 64 * 1_024;

/** The failure in an outcome, if there is one. */
export function failureOf(outcome: unknown): Failure | undefined {
  const failure = isRecord(outcome) ? outcome["failure"] : undefined;
  if (!isRecord(failure)) return undefined;
  const { code, message } = failure;
  return typeof code === "string" && typeof message === "string"
    ? { code: oneLine(code), message: plain(message) }
    : undefined;
}

/** What the outcome holds, as indented JSON without control characters. */
export function outcomeText(outcome: unknown): string {
  if (outcome === undefined || outcome === null) return "";
  const inner = isRecord(outcome) ? (outcome["result"] ?? outcome["failure"] ?? outcome) : outcome;
  const clean = (_: string, value: unknown): unknown => (typeof value === "string" ? plain(value) : value);
  const text = JSON.stringify(inner, clean, 2) ?? "";
  return text.length <= OUTCOME_MAX ? text : `${text.slice(0, OUTCOME_MAX)}…`;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

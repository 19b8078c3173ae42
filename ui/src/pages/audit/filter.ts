//! The filter of the audit records: as parameters of the address, of the API, and of the command line program.

import type { AuditAction, AuditResult } from "../../api/types";
import { commandLine } from "../../text/command";

export const FILTER_FIELDS = [
  "actor",
  "target",
  "action",
  "result",
  "workload",
  "correlation",
  "since",
  "until",
] as const;

export type AuditFilter = Partial<Record<(typeof FILTER_FIELDS)[number], string>>;

export function filterOf(query: URLSearchParams): AuditFilter {
  return Object.fromEntries(
    FILTER_FIELDS.flatMap((field) => {
      const value = query.get(field)?.trim();
      return value ? [[field, value]] : [];
    }),
  );
}

/** The query of the API. Times of a form have no zone: they are the browser's. */
export function queryOf(filter: AuditFilter, project: string | undefined) {
  const { action, result, since, until, ...rest } = filter;
  const [from, to] = [instantOf(since), instantOf(until)];
  return {
    ...rest,
    ...(action && { action: action as AuditAction }),
    ...(result && { result: result as AuditResult }),
    ...(from && { since: from }),
    ...(to && { until: to }),
    ...(project && { project }),
  };
}

/** A time of a form as an instant, or as it is if it is none: the control plane then says what is wrong. */
export function instantOf(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const time = Date.parse(text);
  return Number.isNaN(time) ? text : new Date(time).toISOString();
}

export function commandOf(filter: AuditFilter, project: string | undefined): string {
  const query = queryOf(filter, project);
  return commandLine("audit", "list", ...Object.entries(query).flatMap(([name, value]) => [`--${name}`, value]));
}

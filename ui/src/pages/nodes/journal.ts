//! The last lines of a member's journal.

import type { LogLine } from "../../api/types";
import { readDocuments } from "../../logs/request";

const TAIL = 200;

export async function journalOf(
  { project, workload, member }: { project: string; workload: string; member: string },
  signal: AbortSignal,
): Promise<LogLine[]> {
  const path = `/api/v1/workloads/${encodeURIComponent(workload)}/members/${encodeURIComponent(member)}/logs`;
  const address = `${path}?tail=${TAIL}&project=${encodeURIComponent(project)}`;
  const lines: LogLine[] = [];
  for await (const documents of readDocuments(address, signal)) lines.push(...documents.filter(isLogLine));
  return lines;
}

function isLogLine(value: unknown): value is LogLine {
  return typeof value === "object" && value !== null && "text" in value && typeof value.text === "string";
}

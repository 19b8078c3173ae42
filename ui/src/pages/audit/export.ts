//! Audit records as a file of JSON lines.

import type { AuditEntry } from "../../api/types";

export function jsonLines(records: readonly AuditEntry[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}

/** For example `audit-2026-07-01T12-00-00Z.jsonl`. */
export function fileName(at: number): string {
  return `audit-${new Date(at).toISOString().slice(0, 19).replaceAll(":", "-")}Z.jsonl`;
}

/** Lets the browser save a text. */
export function save(text: string, name: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // The download has begun once the click is handled.
  setTimeout(() => URL.revokeObjectURL(address), 1_000);
}

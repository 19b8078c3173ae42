//! The chain of the audit: its state, and the result of a verification.

import { api, take } from "../../api/client";
import type { AuditChain, AuditDefect, AuditHead, AuditVerification } from "../../api/types";
import type { Look } from "../../components/looks";
import type { LiveSource } from "../../live/live.svelte";
import { counted } from "../../text/plain";

/** A record is sealed some seconds after it was written. Later than this, something keeps the control plane from it. */
export const LATE_AFTER_MS = 120_000;
/** No event announces a seal: while records have none, the state is read again after this time. */
export const READ_AGAIN_MS = 5_000;
/** Almost every event of the platform has a record: a busy one must not have the state read for each of them. */
const PAUSE_MS = 2_000;

export function chainState(): LiveSource<AuditChain> {
  return {
    key: "audit chain",
    scope: "platform",
    pause: PAUSE_MS,
    load: (signal) => take(api.GET("/api/v1/audit/chain", { signal })),
    // A record is sealed after its event.
    on: () => true,
  };
}

/**
 * Asks the control plane to verify every record. Without an idempotency key: a request that has one runs to its end after its tab was
 * closed, and no other verification could start until then.
 */
export function verify(): Promise<AuditVerification> {
  return take(api.POST("/api/v1/audit/verify", { body: {} }));
}

/** How the state of the chain looks at a time of the server's clock. It says nothing about whether the chain is intact. */
export function chainLook(chain: AuditChain, now: number): Look {
  if (typeof chain.stopped === "string") {
    return { word: "Sealing has stopped", tone: "attention", icon: "triangle-alert" };
  }
  if (chain.unsealed === 0) {
    return chain.last_seal
      ? { word: "Sealed", tone: "healthy", icon: "circle-check" }
      : { word: "Nothing to seal", tone: "muted", icon: "circle-dashed" };
  }
  const since = Date.parse(chain.unsealed_since ?? "");
  return now - since > LATE_AFTER_MS
    ? { word: "Sealing is late", tone: "attention", icon: "triangle-alert" }
    : { word: "Sealing soon", tone: "muted", icon: "clock" };
}

/** A head as the command line program prints and takes it: `412:9f86…`. */
export function headText(head: AuditHead): string {
  return `${head.seal}:${head.digest}`;
}

/** What was verified, in words. */
export function verifiedText(result: AuditVerification): string {
  const all = `${counted(result.records, "record")} and ${counted(result.seals, "seal")}`;
  if (result.defects_found > 0) return `${all}; ${counted(result.defects_found, "defect")}`;
  return result.unsealed === 0 ? all : `${all}; ${counted(result.unsealed, "record")} not sealed yet`;
}

/** Where the chain is broken, and how. */
export function defectText({ kind, seal, record }: AuditDefect): string {
  const place =
    typeof record === "number"
      ? `Record ${record}${typeof seal === "number" ? `, of seal ${seal},` : ", after the last seal,"}`
      : typeof seal === "number"
        ? `Seal ${seal} or one of its records`
        : "The audit";
  switch (kind) {
    case "missing":
      return `${place} is missing.`;
    case "added":
      return `${place} was added later.`;
    case "signature":
      return `${place} has no valid signature.`;
    default:
      return `${place} was changed.`;
  }
}

/** The defects behind the first one, each as a sentence, and a line for those that the result only counts. */
export function furtherDefects({ defects, defects_found }: AuditVerification): string[] {
  const lines = defects.slice(1).map(defectText);
  const more = defects_found - defects.length;
  return more > 0 ? [...lines, `And ${counted(more, "more defect")}.`] : lines;
}

/** What a person does while the control plane seals nothing. */
export const STOPPED_NEXT =
  "Copy the database, find out who can write to it, and verify the audit with a noted head before a control plane is restarted.";

/** What a person does about a broken chain. */
export const NEXT =
  "Keep a copy of the database before anything else changes, find out who can write to it, and compare the audit with a backup.";

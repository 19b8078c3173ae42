//! Keeps a list of records still while newer ones arrive: those announce themselves and are shown on demand.

import type { AuditEntry } from "../../api/types";

/** The records of `newest` that are newer than those shown. */
export function arrived(newest: readonly AuditEntry[], shown: readonly AuditEntry[]): AuditEntry[] {
  const top = shown[0]?.sequence ?? -1;
  return newest.filter((record) => record.sequence > top);
}

/**
 * The list with the newest records on top. Where more arrived than `newest` has, nothing joins the two lists, and the newest ones replace the
 * list: `undefined` for the records that followed.
 */
export function joined(newest: readonly AuditEntry[], shown: readonly AuditEntry[]): AuditEntry[] | undefined {
  const fresh = arrived(newest, shown);
  return fresh.length < newest.length || shown.length === 0 ? [...fresh, ...shown] : undefined;
}

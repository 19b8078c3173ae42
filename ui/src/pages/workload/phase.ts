//! What a workload shows beside its state: its phase and its health, where the state does not tell them.

import type { Health, Lifecycle, Workload } from "../../api/types";
import { oneLine, words } from "../../text/plain";

const AT_REST: readonly Lifecycle[] = ["running", "stopped", "decommissioned"];

/** The phase in words; `undefined` for a workload that has settled. */
export function phaseOf(
  workload: Pick<Workload, "lifecycle" | "health" | "phase" | "completed" | "total">,
): string | undefined {
  const { lifecycle, health, phase, completed, total } = workload;
  const isSettled = AT_REST.includes(lifecycle) && health !== "progressing" && completed >= total;
  return isSettled ? undefined : oneLine(words(phase));
}

/** The health of a workload that does not run, unless its lifecycle says it: one that stops can be degraded. */
export function healthBeside({ lifecycle, health }: Pick<Workload, "lifecycle" | "health">): Health | undefined {
  const isSaid = lifecycle === "running" || health === "none" || health === "progressing" || health === lifecycle;
  return isSaid ? undefined : health;
}

//! How a node is, in one of four conditions, what its findings say, and which GPUs it has. An agent does not observe whether these work.

import type { Node, PreflightFinding } from "../../api/types";
import type { Tone } from "../../components/looks";
import { counted } from "../../text/plain";

export const CONDITIONS = ["unreachable", "attention", "well", "unused"] as const;

export type Condition = (typeof CONDITIONS)[number];

export const CONDITION_WORDS: Record<Condition, string> = {
  unreachable: "Unreachable",
  attention: "Needs attention",
  well: "Well",
  unused: "Not in use",
};

export const CONDITION_TONES: Record<Condition, Tone> = {
  unreachable: "failed",
  attention: "attention",
  well: "healthy",
  unused: "muted",
};

export function conditionOf(node: Node): Condition {
  if (node.state === "retired" || node.connectivity === "never") return "unused";
  if (node.connectivity === "unreachable") return "unreachable";
  const isDoubtful =
    node.connectivity === "stale" ||
    node.state === "needs_reimage" ||
    (node.agent_problem ?? undefined) !== undefined ||
    blocking(node).length > 0;
  return isDoubtful ? "attention" : "well";
}

export function findingsOf(node: Node): PreflightFinding[] {
  return node.preflight?.findings ?? [];
}

export function blocking(node: Node): PreflightFinding[] {
  return findingsOf(node).filter((finding) => finding.severity === "blocking");
}

export interface FindingsNote {
  text: string;
  tone: Tone;
}

/** What the latest preflight found, in a few words. */
export function findingsNote(node: Node): FindingsNote {
  if (!node.preflight) return { text: "Not inspected", tone: "muted" };
  const [all, hard] = [findingsOf(node).length, blocking(node).length];
  if (hard > 0) return { text: `${hard} blocking`, tone: "failed" };
  if (all > 0) return { text: counted(all, "warning"), tone: "attention" };
  return { text: "Passed", tone: "healthy" };
}

/** The GPUs of a node, equal ones together: `8×NVIDIA H200`. `undefined` if the agent did not report them. */
export function gpuText(node: Node): string | undefined {
  const gpus = node.facts?.machine?.gpus;
  if (!gpus) return undefined;
  if (gpus.length === 0) return "no GPU";
  const counts = new Map<string, number>();
  for (const gpu of gpus) {
    const model = gpu.model ?? gpu.pci_id;
    counts.set(model, (counts.get(model) ?? 0) + 1);
  }
  return [...counts].map(([model, count]) => `${count}×${model}`).join(", ");
}

export function gpuCount(node: Node): number | undefined {
  return node.facts?.machine?.gpus.length;
}

/** What the strip and the filter of the fleet show. */
export function countByCondition(nodes: readonly Node[]): Record<Condition, number> {
  const counts: Record<Condition, number> = { unreachable: 0, attention: 0, well: 0, unused: 0 };
  for (const node of nodes) counts[conditionOf(node)] += 1;
  return counts;
}

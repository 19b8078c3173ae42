//! The nodes that an operator can allocate, usable ones first; the others stay visible with their reason.

import type { Node } from "../../api/types";
import { blocking } from "../nodes/condition";
import { ordered, selected } from "../nodes/fleet";

export interface Candidate {
  node: Node;
  /** Why it cannot be allocated now. */
  reason: string | undefined;
}

/** So many are listed; the filter finds the others. */
const LISTED_MAX = 100;

export function candidates(nodes: readonly Node[], filter: string): Candidate[] {
  const all = selected(ordered(nodes), filter, undefined).map((node) => ({ node, reason: reasonAgainst(node) }));
  const usable = all.filter((candidate) => candidate.reason === undefined);
  const others = all.filter((candidate) => candidate.reason !== undefined);
  return [...usable, ...others].slice(0, LISTED_MAX);
}

function reasonAgainst(node: Node): string | undefined {
  if (node.allocation) return `held by ${node.allocation.project_name ?? "a project"}`;
  if (node.state === "needs_reimage") return "needs a reimage";
  if (node.state === "retired") return "retired";
  if (node.connectivity === "never" || node.state === "registered") return "not enrolled";
  if (node.state !== "active") return `is ${node.state}`;
  if (node.connectivity !== "connected") return node.connectivity;
  const [first] = blocking(node);
  return first && `blocked: ${first.detail}`;
}

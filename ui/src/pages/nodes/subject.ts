//! A node as the one thing that a request changes.

import type { Subject } from "../../api/change.svelte";
import { api, takeTagged } from "../../api/client";
import type { Node } from "../../api/types";
import { lookOf } from "../../components/looks";
import { oneLine } from "../../text/plain";
import { absolute } from "../../text/time";

export function nodeSubject(id: string): Subject<Node> {
  return {
    name: "The node",
    read: () => takeTagged(api.GET("/api/v1/nodes/{node}", { params: { path: { node: id } } })),
    facts: nodeFacts,
  };
}

export function nodeFacts(node: Node): Record<string, string> {
  const { agent_problem: problem, allocation, connectivity, inspected_at: inspectedAt, state } = node;
  return {
    "The node": state === "needs_reimage" ? "waiting for a reimage" : word(lookOf("node", state)),
    "Its agent": word(lookOf("connectivity", connectivity)),
    "The project that holds it": allocation ? oneLine(allocation.project_name ?? allocation.project) : "none",
    "Its enrollment command": enrollmentOf(node),
    "Its machine": node.machine_id ? `the one with the id ${oneLine(node.machine_id)}` : "unknown",
    "The version of its agent": node.agent_version ? oneLine(node.agent_version) : "unknown",
    "The problem of its agent": problem ? oneLine(problem.detail) : "none",
    "Its latest inspection": inspectedAt ? `the one of ${absolute(Date.parse(inspectedAt))}` : "due",
  };
}

/** While its machine is awaited, the wait ends at the latest when the command expires. */
function enrollmentOf({ state, waiting }: Node): string {
  const until = state === "registered" || state === "enrolled" ? waiting?.until : undefined;
  return until ? `valid until ${absolute(Date.parse(until))}` : "not valid";
}

function word(look: { word: string }): string {
  return look.word.toLowerCase();
}

//! Whether the member on a node can be drained now, and why not. The control plane decides: its workload lists what it accepts of each member.

import type { Node, WorkloadDetail } from "../../api/types";
import { lookOf } from "../../components/looks";
import { oneLine } from "../../text/plain";

export interface Drain {
  /** Name of the member on the node. */
  member: string | undefined;
  /** Why it cannot be drained now. */
  reason: string | undefined;
}

/** `detail` is the workload of the member; `undefined` until it was read. */
export function drainOf({ allocation }: Pick<Node, "allocation">, detail: WorkloadDetail | undefined): Drain {
  if (!allocation?.workload || !allocation.member)
    return { member: undefined, reason: "No workload that you may see uses the node." };
  const member = oneLine(allocation.member);
  return { member, reason: reasonAgainst(member, oneLine(allocation.workload), detail) };
}

function reasonAgainst(name: string, workload: string, detail: WorkloadDetail | undefined): string | undefined {
  if (detail === undefined) return `Workload ${workload} was not read yet.`;
  const member = detail.members.find((candidate) => candidate.name === name && candidate.state !== "removed");
  if (member === undefined) return `Workload ${workload} no longer has the member ${name}.`;
  if (member.actions?.includes("drain_member")) return undefined;
  if (member.state === "drained") return `${name} is drained. The page of its workload lets it accept work again.`;
  if (detail.workload.actions?.includes("cancel")) return `An operation of workload ${workload} is in progress.`;
  return `Workload ${workload} accepts no drain of ${name} while it is ${word(lookOf("member", member.state))}.`;
}

function word(look: { word: string }): string {
  return look.word.toLowerCase();
}

//! What the table of members shows.

import type { Member, OperationKind } from "../../api/types";
import { oneLine } from "../../text/plain";
import { groupOf } from "./graph";

/** The id of a member's row: rows are marked by their ids on every page, and members of two workloads may have the same name. */
export function rowOfMember(workload: { id: string }, member: Pick<Member, "name">): string {
  return `${workload.id}/${member.name}`;
}

/** Members that are shown: those present, and if wanted those that were removed. */
export function shownMembers(members: readonly Member[], filter: string, removed: boolean): Member[] {
  const wanted = filter.trim().toLowerCase();
  return members.filter(
    (member) => (removed || member.state !== "removed") && (wanted === "" || textOf(member).includes(wanted)),
  );
}

function textOf(member: Member): string {
  return `${member.name} ${member.node_name} ${member.state} ${member.health} ${whyOfMember(member)}`.toLowerCase();
}

/** Why a member is not well or what it waits for, in one line; empty if neither. */
export function whyOfMember(member: Member): string {
  if (member.fault) return oneLine(member.fault.summary);
  if (member.reported && member.reported.health !== "healthy" && member.reported.message)
    return oneLine(member.reported.message);
  return member.waiting ? oneLine(`waiting for ${member.waiting.what}`) : "";
}

/** Since when a member is as `whyOfMember` says. */
export function sinceOfMember(member: Member): string | null | undefined {
  const reported = member.reported?.health === "healthy" ? undefined : member.reported?.since;
  return member.waiting?.since ?? member.fault?.evidence_at ?? reported;
}

/** The actions that the API offers for a member, those that take it away last. */
export function memberActions(member: Pick<Member, "actions">): OperationKind[] {
  const last: readonly OperationKind[] = ["replace_member", "remove_member"];
  const kinds = member.actions ?? [];
  return [...kinds.filter((kind) => !last.includes(kind)), ...last.filter((kind) => kinds.includes(kind))];
}

/** `2 agents, 1 server`: how many members are present, by group. */
export function groupCounts(members: readonly Member[]): string {
  const counts = new Map<string, number>();
  for (const member of members) {
    if (member.state === "removed") continue;
    const group = groupOf(member.name);
    counts.set(group, (counts.get(group) ?? 0) + 1);
  }
  return [...counts].map(([group, count]) => `${count} ${group}${count === 1 ? "" : "s"}`).join(", ");
}

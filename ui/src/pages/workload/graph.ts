//! Places the members of a workload in a picture: the group that the others depend on above, the others below it.

import type { Member } from "../../api/types";

export const BOX_WIDTH = 138;
export const BOX_HEIGHT = 52;
const GAP_X = 14;
const GAP_Y = 16;
/** Height of the lines between the first group and the next. */
const LINES = 68;
/** Members of one group that are drawn; of more, the well ones are counted instead. */
const DRAWN_MAX = 12;

export interface Box {
  member: Member;
  x: number;
  y: number;
}

export interface Link {
  name: string;
  path: string;
  isWell: boolean;
}

export interface Graph {
  boxes: Box[];
  /** The line from the first group down to where the others branch off. */
  trunk: string;
  links: Link[];
  width: number;
  height: number;
  /** Members that are not drawn, all of them well. */
  more: number;
}

/** The group of a member: its name without the number, `agent` of `agent-2`. Apps choose the words. */
export function groupOf(name: string): string {
  return name.replace(/-\d+$/, "");
}

/** Present members by group, in the order of the API: an app lists first what the others depend on. */
export function groupsOf(members: readonly Member[]): Member[][] {
  const groups = new Map<string, Member[]>();
  for (const member of members) {
    if (member.state === "removed") continue;
    const group = groups.get(groupOf(member.name)) ?? [];
    group.push(member);
    groups.set(groupOf(member.name), group);
  }
  return [...groups.values()];
}

export function isWell(member: Member): boolean {
  return member.health === "healthy";
}

/** The members to draw: all of a small group; of a large one those that need a look, then the first others. */
function drawn(group: readonly Member[]): Member[] {
  if (group.length <= DRAWN_MAX) return [...group];
  const chosen = new Set([...group.filter((member) => !isWell(member)), ...group.filter(isWell)].slice(0, DRAWN_MAX));
  return group.filter((member) => chosen.has(member));
}

export function graphOf(members: readonly Member[], width: number): Graph {
  const [first = [], ...others] = groupsOf(members).map(drawn);
  const below = others.flat();
  const columns = Math.max(1, Math.floor((width + GAP_X) / (BOX_WIDTH + GAP_X)));
  const top = place(first, columns, width, 0);
  const topHeight = heightOf(first.length, columns);
  const bottom = place(below, columns, width, topHeight + LINES);
  const isLinked = first.length > 0 && bottom.length > 0;
  const present = members.filter((member) => member.state !== "removed").length;
  return {
    boxes: [...top, ...bottom],
    trunk: isLinked ? `M${width / 2} ${topHeight}V${Math.max(...bottom.map(across))}` : "",
    links: isLinked ? bottom.map((box) => link(box, width / 2)) : [],
    width,
    height: topHeight + (below.length > 0 ? LINES + heightOf(below.length, columns) : 0),
    more: present - first.length - below.length,
  };
}

function heightOf(count: number, columns: number): number {
  const rows = Math.ceil(count / columns);
  return rows === 0 ? 0 : rows * (BOX_HEIGHT + GAP_Y) - GAP_Y;
}

/** Rows of boxes, each row centred. */
function place(members: readonly Member[], columns: number, width: number, top: number): Box[] {
  return members.map((member, index) => {
    const row = Math.floor(index / columns);
    const inRow = Math.min(columns, members.length - row * columns);
    const left = (width - (inRow * (BOX_WIDTH + GAP_X) - GAP_X)) / 2;
    return { member, x: left + (index % columns) * (BOX_WIDTH + GAP_X), y: top + row * (BOX_HEIGHT + GAP_Y) };
  });
}

/** Height of the line above a row of boxes. */
function across(box: Box): number {
  return box.y - GAP_Y / 2;
}

/** From the trunk across, and down to the box. */
function link(box: Box, middle: number): Link {
  const path = `M${middle} ${across(box)}H${box.x + BOX_WIDTH / 2}V${box.y}`;
  return { name: box.member.name, path, isWell: isWell(box.member) };
}

//! Nodes, their allocations and their tasks, live.

import { api, take, takeAll } from "../../api/client";
import { session } from "../../api/session.svelte";
import type { Node, Task } from "../../api/types";
import type { Scope } from "../../live/hub.svelte";
import { listSource } from "../../live/list";
import type { LiveSource } from "../../live/live.svelte";
import { memberOf, nodeOf } from "../../live/touches";
import { hasEnded } from "./fleet";

/** Events of nodes are on the platform's stream, which platform roles alone may read; those of members and allocations on their project's. */
export function nodeScope(): readonly Scope[] {
  return session.may("platform.read") ? ["platform", "project"] : ["project"];
}

/** Whether the caller may open the page of a node: a project may read the nodes that it holds. */
export function mayOpenNode(isHeld: boolean): boolean {
  return session.may("platform.read") || (isHeld && session.may("project.read"));
}

export function readNode(node: string, signal?: AbortSignal): Promise<Node> {
  return take(api.GET("/api/v1/nodes/{node}", { params: { path: { node } }, ...(signal && { signal }) }));
}

/** Members and allocations of projects that are not chosen change without an event on the followed streams. */
const OTHER_PROJECTS_MS = 60_000;
/** Every start and end of an operation reads all nodes again. */
const ALL_NODES_MS = 2_000;

/** All nodes. Changes of their members are followed in the chosen project, and read by the clock in others. */
export function fleet(): LiveSource<Node[]> {
  return listSource<Node>({
    key: "nodes",
    scope: nodeScope(),
    page: (cursor, signal) => take(api.GET("/api/v1/nodes", { params: { query: { cursor } }, signal })),
    one: readNode,
    id: (node) => node.id,
    what: "node",
    name: (node) => node.name,
    on: (event) => {
      if (event.subject_kind === "node") return event.subject_id;
      // A workload takes or leaves its nodes in operations, which do not name all of them.
      return CHANGES_ALLOCATIONS.has(event.kind);
    },
    pause: ALL_NODES_MS,
    every: OTHER_PROJECTS_MS,
  });
}

const CHANGES_ALLOCATIONS = new Set<string>(["allocation.changed", "operation.started", "operation.ended"]);

export function oneNode(name: string): LiveSource<Node> {
  return {
    key: `node ${name}`,
    scope: nodeScope(),
    load: (signal) => readNode(name, signal),
    on: (event, node) => {
      if (event.subject_kind === "allocation")
        return event.subject_id === node?.allocation?.id || nodeOf(event) === (node?.name ?? name);
      // The member on the node follows its connection and its unit: a project's stream has no events of nodes.
      if (event.subject_kind === "member") return isOn(node, memberOf(event));
      const about = nodeOf(event);
      return about !== undefined && (about === name || about === node?.id);
    },
  };
}

/** Whether a member of this name may be on the node. The first member on an allocated node is known only after the next reading. */
function isOn(node: Node | undefined, member: string | undefined): boolean {
  if (node === undefined) return true;
  const { allocation } = node;
  if (!allocation) return false;
  return !allocation.member || allocation.member === member;
}

/** Whether the chosen project holds a node now. */
export function holds(node: string): LiveSource<boolean> {
  const { project } = session;
  return {
    key: `${project ?? ""} holds ${node}`,
    load: async (signal) => {
      const allocations = await takeAll((cursor) =>
        take(api.GET("/api/v1/allocations", { params: { query: { project, cursor } }, signal })),
      );
      return allocations.some((allocation) => allocation.node_name === node && !hasEnded(allocation));
    },
    on: (event) => event.kind === "allocation.changed",
  };
}

/** So many of a node's tasks are read, the newest ones. */
export const TASKS_MAX = 5_000;

/** The tasks of a node, newest first. */
export function tasksOf(node: Pick<Node, "id" | "name">): LiveSource<Task[]> {
  const one = (id: string, signal: AbortSignal) =>
    take(api.GET("/api/v1/tasks/{id}", { params: { path: { id } }, signal }));
  const page = (cursor: string | undefined, signal: AbortSignal) =>
    take(api.GET("/api/v1/tasks", { params: { query: { node: node.id, order: "newest", cursor } }, signal }));
  return {
    key: `tasks of ${node.id}`,
    scope: nodeScope(),
    load: async (signal) => newestFirst(await takeAll((cursor) => page(cursor, signal), TASKS_MAX)),
    patch: async (tasks, ids, signal) => {
      const read = await Promise.all(ids.map((id) => one(id, signal)));
      const left = new Map(read.map((task) => [task.id, task]));
      const kept = tasks.map((task) => {
        const fresh = left.get(task.id);
        left.delete(task.id);
        return fresh ?? task;
      });
      return newestFirst([...kept, ...left.values()]);
    },
    on: (event) => {
      if (event.kind !== "task.changed") return false;
      const about = nodeOf(event);
      return about === node.id || about === node.name ? event.subject_id : false;
    },
  };
}

function newestFirst(tasks: readonly Task[]): Task[] {
  return [...tasks].sort((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at));
}

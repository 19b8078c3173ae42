//! Projects, keys and replicas, live.

import { api, take } from "../../api/client";
import { session } from "../../api/session.svelte";
import type { Authority, Project, Replica, SealingKey, SigningKey } from "../../api/types";
import { listSource } from "../../live/list";
import type { LiveSource } from "../../live/live.svelte";

export function projectList(): LiveSource<Project[]> {
  return listSource<Project>({
    key: "projects",
    scope: session.may("platform.read") ? "platform" : "project",
    page: (cursor, signal) => take(api.GET("/api/v1/projects", { params: { query: { cursor } }, signal })),
    id: (project) => project.id,
    what: "project",
    name: (project) => project.name,
    on: (event) => event.subject_kind === "project",
  });
}

export interface Keys {
  signing: SigningKey[];
  authorities: Authority[];
  sealing: SealingKey;
}

const KEY_EVENTS = new Set(["signing_key.state_changed", "authority.state_changed", "sealing_key.state_changed"]);

export function allKeys(): LiveSource<Keys> {
  return {
    key: "keys",
    scope: "platform",
    load: async (signal) => {
      const [signing, authorities, sealing] = await Promise.all([
        take(api.GET("/api/v1/signing-keys", { signal })),
        take(api.GET("/api/v1/authorities", { signal })),
        take(api.GET("/api/v1/sealing-key", { signal })),
      ]);
      return { signing: newestFirst(signing.items), authorities: newestFirst(authorities.items), sealing };
    },
    on: (event) => KEY_EVENTS.has(event.kind),
  };
}

function newestFirst<T extends { created_at: string }>(keys: readonly T[]): T[] {
  return [...keys].sort((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at));
}

export function replicas(): LiveSource<Replica[]> {
  return listSource<Replica>({
    key: "replicas",
    scope: "platform",
    page: (cursor, signal) => take(api.GET("/api/v1/replicas", { params: { query: { cursor } }, signal })),
    id: (replica) => replica.id,
    what: "replica",
    name: (replica) => replica.api_url,
    on: (event) => event.kind.startsWith("replica.") || event.kind === "node.connectivity_changed",
  });
}

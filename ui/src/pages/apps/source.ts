//! The catalog, live: a release that is imported changes an app's versions.

import { api, take } from "../../api/client";
import { session } from "../../api/session.svelte";
import type { App, Event } from "../../api/types";
import type { Scope } from "../../live/hub.svelte";
import type { LiveSource } from "../../live/live.svelte";

const scope = (): Scope => (session.may("platform.read") ? "platform" : "project");
const isImport = (event: Event): boolean => event.kind === "artifact.imported";

export function catalog(): LiveSource<App[]> {
  return {
    key: "apps",
    scope: scope(),
    load: async (signal) => (await take(api.GET("/api/v1/apps", { signal }))).items,
    on: isImport,
  };
}

export function oneApp(slug: string): LiveSource<App> {
  return {
    key: `app ${slug}`,
    scope: scope(),
    load: (signal) => take(api.GET("/api/v1/apps/{slug}", { params: { path: { slug } }, signal })),
    on: isImport,
  };
}

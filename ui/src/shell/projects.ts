//! Keeps the choice of projects current while others create and delete projects.

import type { Event } from "../api/types";
import type { Follower } from "../live/hub.svelte";
import { browserTiming, Reader, type Timing } from "../live/reader";

/** Projects that are created by a program come in great numbers. */
export const PROJECTS_PAUSE_MS = 2_000;

/** A follower of the platform's stream that calls `load` when projects have changed, or may have. */
export function projectsFollower(
  load: () => Promise<void>,
  timing: Timing = browserTiming,
): { follower: Follower; stop: () => void } {
  const ignored = (): void => undefined;
  const sink = { loaded: ignored, failed: ignored, loading: ignored };
  const reader = new Reader<void>({ key: "projects", pause: PROJECTS_PAUSE_MS, load }, sink, timing);
  const follower: Follower = {
    events: (events: readonly Event[]) => {
      if (events.some((event) => event.subject_kind === "project")) reader.touch(true);
    },
    refreshSince: (moment) => {
      // A stream that continues where it ended has missed nothing.
      if (moment > -Infinity) reader.touch(true);
    },
  };
  return { follower, stop: () => reader.stop() };
}

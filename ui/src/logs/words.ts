//! Words of the states of a feed.

import type { FeedState } from "./feed.svelte";

export const FEED_WORDS: Record<FeedState, string> = {
  idle: "Stopped",
  reading: "Reading…",
  live: "Following",
  more: "More lines below",
  held: "Paused: the window is full",
  lost: "Connection lost, trying again…",
  ended: "End of the log",
  failed: "Not readable",
};

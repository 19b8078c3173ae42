import { expect, it } from "vitest";

import type { Event } from "../api/types";
import { PROJECTS_PAUSE_MS, projectsFollower } from "./projects";

function setUp() {
  let [at, loads] = [0, 0];
  let soon: (() => void)[] = [];
  let timers: { at: number; run: () => void }[] = [];
  const { follower, stop } = projectsFollower(
    () => {
      loads += 1;
      return Promise.resolve();
    },
    {
      now: () => at,
      soon: (run) => void soon.push(run),
      after: (ms, run) => {
        const timer = { at: at + ms, run };
        timers.push(timer);
        return () => (timers = timers.filter((other) => other !== timer));
      },
    },
  );
  const pass = async (ms: number): Promise<void> => {
    at += ms;
    const due = timers.filter((timer) => timer.at <= at);
    timers = timers.filter((timer) => timer.at > at);
    due.forEach((timer) => timer.run());
    const ready = soon;
    soon = [];
    ready.forEach((run) => run());
    await new Promise((resolve) => setTimeout(resolve));
  };
  return { follower, stop, pass, loads: () => loads };
}

const event = (subject_kind: string): Event => ({
  stream: "platform",
  sequence: 1,
  at: "",
  kind: "project.created",
  subject_kind,
  subject_id: "p-1",
  data: {},
});

it("reads projects when one changes, and few times however many change", async () => {
  const { follower, pass, loads } = setUp();
  follower.events([event("node")]);
  await pass(0);
  expect(loads()).toBe(0);
  for (let batch = 0; batch < 20; batch += 1) {
    follower.events([event("node"), event("project")]);
    await pass(100);
  }
  expect(loads()).toBe(1);
  await pass(PROJECTS_PAUSE_MS);
  expect(loads()).toBe(2);
  await pass(PROJECTS_PAUSE_MS);
  expect(loads()).toBe(2);
});

it("reads projects after a loss in which their events may have been missed, and not after another one", async () => {
  const { follower, pass, loads } = setUp();
  follower.refreshSince(-Infinity);
  await pass(0);
  expect(loads()).toBe(0);
  follower.refreshSince(1_000);
  await pass(0);
  expect(loads()).toBe(1);
});

it("reads nothing once it has stopped", async () => {
  const { follower, stop, pass, loads } = setUp();
  follower.events([event("project")]);
  stop();
  await pass(PROJECTS_PAUSE_MS);
  expect(loads()).toBe(0);
});

//! What the page of an operation says about one step.

import type { Member, Step, Task } from "../../api/types";

/** The member that a step is for: the first part of its key, if a member has that name. */
export function memberOfStep(step: Pick<Step, "key">, members: readonly Pick<Member, "name">[]): string | undefined {
  const [first] = step.key.split("/");
  return members.find((member) => member.name === first)?.name;
}

/** The step to show first: one that failed, else one that runs or waits, else the last one that began. */
export function notableStep(steps: readonly Step[]): Step | undefined {
  const byState = (...states: Step["state"][]): Step | undefined => steps.find((step) => states.includes(step.state));
  return byState("failed") ?? byState("running", "backoff") ?? steps.filter((step) => step.started_at).at(-1);
}

/** A part of a step's time. */
export interface Part {
  name: string;
  ms: number;
}

/**
 * How the time of a step divides: before the task of the current attempt, that task, and after it. Earlier attempts and their waits count as
 * before.
 */
export function partsOf(step: Step, task: Task | undefined, now: number): Part[] {
  if (!step.started_at) return [];
  const from = Date.parse(step.started_at);
  const to = step.ended_at ? Date.parse(step.ended_at) : now;
  if (task === undefined) return [{ name: "in total", ms: to - from }];
  const sent = Date.parse(task.created_at);
  const ended = task.ended_at ? Date.parse(task.ended_at) : to;
  const before = step.attempts > 1 ? "earlier attempts and waits" : "before the task";
  const parts = [
    { name: before, ms: sent - from },
    { name: "task", ms: ended - sent },
    { name: "after the task", ms: to - ended },
  ];
  return parts.filter((part) => part.ms > 0);
}

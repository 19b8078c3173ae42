import { expect, it } from "vitest";

import { healthBeside, phaseOf } from "./phase";

const RUNNING = { lifecycle: "running", health: "healthy", phase: "agent_joining", completed: 9, total: 9 } as const;

it("a workload that has settled needs no phase", () => {
  expect(phaseOf(RUNNING)).toBeUndefined();
  expect(phaseOf({ ...RUNNING, lifecycle: "stopped", health: "none" })).toBeUndefined();
  expect(phaseOf({ ...RUNNING, health: "degraded" })).toBeUndefined();
});

it("one that is under way, or did not get there, has it in words", () => {
  expect(phaseOf({ ...RUNNING, lifecycle: "deploying" })).toBe("agent joining");
  expect(phaseOf({ ...RUNNING, lifecycle: "failed" })).toBe("agent joining");
  expect(phaseOf({ ...RUNNING, health: "progressing" })).toBe("agent joining");
  expect(phaseOf({ ...RUNNING, completed: 8 })).toBe("agent joining");
});

it("the health is shown once: by the state of what runs, beside that of what does not", () => {
  expect(healthBeside({ lifecycle: "stopping", health: "degraded" })).toBe("degraded");
  expect(healthBeside({ lifecycle: "deploying", health: "failed" })).toBe("failed");
  expect(healthBeside({ lifecycle: "deploying", health: "progressing" })).toBeUndefined();
  expect(healthBeside({ lifecycle: "running", health: "degraded" })).toBeUndefined();
  expect(healthBeside({ lifecycle: "failed", health: "failed" })).toBeUndefined();
});

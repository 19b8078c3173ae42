import { expect, it } from "vitest";

import { ProblemError } from "../api/problem";
import type { Preview, Problem, Started } from "../api/types";
import { type PlanQuery, PlannedRun } from "./planned.svelte";

const plan = (digest: string): Preview => ({
  kind: "stop",
  digest,
  members: [],
  steps: [],
  promises: [],
  not_promised: [],
});
const STARTED = { operation: { id: "o" }, workload: { name: "train" } } as unknown as Started;

function problem(code: string): Problem {
  return { type: "", title: "", status: 409, code, detail: code, correlation_id: "" };
}

/** A control plane that would run the plan `present.digest`. */
function server(present: { digest: string }): { calls: PlanQuery[]; run: PlannedRun<string> } {
  const calls: PlanQuery[] = [];
  const run = new PlannedRun<string>(async (_, query) => {
    calls.push(query);
    if (query.dry_run) return plan(present.digest);
    if (query.plan_digest !== present.digest) throw new ProblemError(problem("plan_changed"));
    return STARTED;
  });
  return { calls, run };
}

it("what runs is the plan that was shown", async () => {
  const { calls, run } = server({ digest: "plan-1" });
  expect(await run.review("stop")).toBe(true);
  expect(await run.run()).toBe(STARTED);
  expect(calls).toEqual([{ dry_run: true }, { plan_digest: "plan-1" }]);
});

it("a stale plan starts nothing, and shows the difference and the newer plan", async () => {
  const present = { digest: "plan-1" };
  const { run } = server(present);
  await run.review("stop");
  present.digest = "plan-2";
  expect(await run.run()).toBeUndefined();
  expect([run.changed?.code, run.plan?.digest, run.problem]).toEqual(["plan_changed", "plan-2", undefined]);
  expect(await run.run()).toBe(STARTED);
});

it("a second click while the first request runs is no second request", async () => {
  const { calls, run } = server({ digest: "plan-1" });
  await run.review("stop");
  const [first, second] = await Promise.all([run.run(), run.run()]);
  expect([first, second]).toEqual([STARTED, undefined]);
  expect(calls).toHaveLength(2);
});

it("without a plan nothing runs", async () => {
  const { calls, run } = server({ digest: "plan-1" });
  expect(await run.run()).toBeUndefined();
  await run.review("stop");
  run.clear();
  expect(await run.run()).toBeUndefined();
  expect(calls).toEqual([{ dry_run: true }]);
});

it("a plan that arrives after the request changed is not shown, and does not hold up the next one", async () => {
  const answers: ((digest: string) => void)[] = [];
  const calls: [string, PlanQuery][] = [];
  const run = new PlannedRun<string>((body, query) => {
    calls.push([body, query]);
    if (!query.dry_run) return Promise.resolve(STARTED);
    return new Promise((resolve) => answers.push((digest) => resolve(plan(digest))));
  });
  const first = run.review("two nodes");
  run.clear();
  expect(run.isPlanning).toBe(false);
  const second = run.review("three nodes");
  answers[1]?.("plan-of-three");
  expect(await second).toBe(true);
  answers[0]?.("plan-of-two");
  expect(await first).toBe(false);
  expect(run.plan?.digest).toBe("plan-of-three");
  expect(await run.run()).toBe(STARTED);
  expect(calls.at(-1)).toEqual(["three nodes", { plan_digest: "plan-of-three" }]);
});

it("the failure of an earlier request is not shown at the next one", async () => {
  let refuse: () => void = () => undefined;
  const run = new PlannedRun<string>(
    () => new Promise((_, reject) => (refuse = () => reject(new ProblemError(problem("placement_invalid"))))),
  );
  const review = run.review("two nodes");
  run.clear();
  refuse();
  expect(await review).toBe(false);
  expect(run.problem).toBeUndefined();
});

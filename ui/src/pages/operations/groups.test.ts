import { expect, it } from "vitest";

import type { Operation } from "../../api/types";
import { grouped, reasonOf } from "./groups";

function operation(changes: Partial<Operation>): Operation {
  return {
    id: "a",
    workload: "w",
    workload_name: "train",
    kind: "deploy",
    state: "succeeded",
    requested_by: "ann",
    created_at: "2026-07-01T12:00:00.000Z",
    ...changes,
  };
}

it("groups operations, the latest first", () => {
  const groups = grouped(
    [
      operation({ id: "1", created_at: "2026-07-01T12:00:00.000Z" }),
      operation({ id: "2", created_at: "2026-07-01T13:00:00.000Z" }),
      operation({ id: "3", state: "waiting" }),
      operation({ id: "4", state: "needs_attention" }),
    ],
    "",
  );
  expect(groups.ended.map(({ id }) => id)).toEqual(["2", "1"]);
  expect(groups.open.map(({ id }) => id)).toEqual(["3"]);
  expect(groups.attention.map(({ id }) => id)).toEqual(["4"]);
});

it("finds operations by the words of their buttons", () => {
  const groups = grouped([operation({ id: "1", kind: "add_member" }), operation({ id: "2" })], "add member");
  expect(groups.ended.map(({ id }) => id)).toEqual(["1"]);
});

it("names the fault before the wait, without escape sequences", () => {
  const fault = { code: "x", summary: "\u001b[31mjoin\nfailed", next: "repair it" };
  const waiting = { what: "a repair", from: "tenant", since: "2026-07-01T12:00:00.000Z", next: "" } as const;
  expect(reasonOf(operation({ state: "needs_attention", fault, waiting }))).toBe("join failed");
  expect(reasonOf(operation({ state: "waiting", waiting }))).toBe("waiting for a repair");
  expect(reasonOf(operation({}))).toBe("");
});

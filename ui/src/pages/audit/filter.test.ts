import { expect, test } from "vitest";

import { commandOf, filterOf, queryOf } from "./filter";

test("a filter is read from the address", () => {
  const filter = filterOf(new URLSearchParams("actor=ann&target=&project=ml&x=1"));
  expect(filter).toEqual({ actor: "ann" });
});

test("the query names instants", () => {
  const query = queryOf({ since: "2026-07-01T12:00:00Z", action: "task.dispatch", result: "refused" }, "ml");
  const since = "2026-07-01T12:00:00.000Z";
  expect(query).toEqual({ since, action: "task.dispatch", result: "refused", project: "ml" });
});

test("a time that is none goes to the control plane, which refuses it", () => {
  expect(queryOf({ until: "soon" }, undefined)).toEqual({ until: "soon" });
});

test("the command quotes what needs it", () => {
  expect(commandOf({ actor: "ann's laptop" }, undefined)).toBe(`gpuaas audit list --actor 'ann'\\''s laptop'`);
});

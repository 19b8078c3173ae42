import { flushSync, untrack } from "svelte";
import { expect, it } from "vitest";

import type { Problem } from "../api/types";
import { Form } from "./form.svelte";

const PROBLEM = {
  status: 422,
  code: "field_invalid",
  detail: "the request is refused",
  errors: [
    { field: "name", code: "field_invalid", detail: "the name is taken" },
    { field: "role", code: "field_invalid", detail: "the role is unknown" },
  ],
} as Problem;

const elsewhere = (form: Form): string[] => form.elsewhere.map(({ field }) => field);

it("what no field shows follows the fields that come and go", () => {
  const form = new Form(() => PROBLEM);
  const seen: string[][] = [];
  const stop = $effect.root(() => {
    $effect(() => {
      seen.push(elsewhere(form));
    });
  });
  flushSync();
  const remove = form.add("name");
  flushSync();
  remove();
  flushSync();
  expect(seen).toEqual([["name", "role"], ["role"], ["name", "role"]]);
  stop();
});

it("fields that are made again are counted, those of others too, and none is left behind", () => {
  const form = new Form(() => PROBLEM);
  let [names, roles] = [["name"], ["role"]];
  let made = $state(0);
  const fields = (read: () => readonly string[]): void => {
    $effect(() => {
      const removals = read().map((field) => untrack(() => form.add(field)));
      return () => removals.forEach((remove) => remove());
    });
  };
  const stop = $effect.root(() => {
    fields(() => (made >= 0 ? names : []));
    fields(() => (made >= 0 ? roles : []));
  });
  flushSync();
  expect(form.isShownAtFields).toBe(true);
  // Both in one batch: the second is removed after the first has been added again.
  made += 1;
  flushSync();
  expect(form.isShownAtFields).toBe(true);
  [names, roles] = [[], ["role"]];
  made += 1;
  flushSync();
  expect(elsewhere(form)).toEqual(["name"]);
  stop();
  expect(elsewhere(form)).toEqual(["name", "role"]);
});

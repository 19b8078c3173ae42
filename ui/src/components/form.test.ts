import { expect, it } from "vitest";

import type { Problem } from "../api/types";
import { Form } from "./form.svelte";

const problem: Problem = {
  type: "/docs/errors/field_invalid",
  title: "",
  status: 422,
  code: "field_invalid",
  detail: "2 fields are wrong",
  correlation_id: "c",
  errors: [
    { field: "name", code: "a", detail: "train exists" },
    { field: "role", code: "b", detail: "a viewer cannot do this" },
  ],
};

it("only a field that is there shows a reason; all others are left for the box", () => {
  const form = new Form(() => problem);
  expect(form.elsewhere.map(({ field }) => field)).toEqual(["name", "role"]);
  const remove = form.add("name");
  const removeAgain = form.add("name");
  form.add("kind");
  expect([form.elsewhere.map(({ field }) => field), form.isShownAtFields]).toEqual([["role"], false]);
  form.add("role");
  expect([form.elsewhere, form.isShownAtFields]).toEqual([[], true]);
  remove();
  expect(form.isShownAtFields, "another field of this name is still there").toBe(true);
  removeAgain();
  expect(form.elsewhere.map(({ field }) => field)).toEqual(["name"]);
});

it("a problem about one field is shown there if it is there", () => {
  const { errors: _, ...own } = { ...problem, field: "name" };
  const form = new Form(() => own);
  expect([form.elsewhere, form.isShownAtFields]).toEqual([[], false]);
  form.add("name");
  expect(form.isShownAtFields).toBe(true);
  expect(new Form(() => undefined).isShownAtFields).toBe(false);
});

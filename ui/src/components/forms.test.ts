import { readdirSync, readFileSync } from "node:fs";

import { expect, it } from "vitest";

const root = new URL("../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");

/** They are the forms of others: what is in `FormDialog`, and questions without a field that the API knows. */
const PARTS = ["components/Confirm.svelte", "components/FormDialog.svelte"];

it("the browser tests have every form, because a field outside of a form fails", () => {
  const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".svelte"));
  const forms = files.filter((file) => /<FormDialog\b|\bprovideForm\(/.test(read(file)) && !PARTS.includes(file));
  const tested = [...read("../tests/forms.ts").matchAll(/^ {4}file: "([^"]+)"/gm)].map(([, file]) => file);
  expect(forms.length).toBeGreaterThan(10);
  expect([...new Set(tested)].sort()).toEqual(forms.sort());
});

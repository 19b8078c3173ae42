import { expect, it } from "vitest";

import { existing } from "./table";

it("leaves out pages without a file", () => {
  const load = () => Promise.reject(new Error("not loaded in this test"));
  const lines = [
    { path: "/a", file: "a/A" },
    { path: "/b", file: "b/B" },
  ];
  expect(existing(lines, { "./b/B.svelte": load }).map(({ path }) => path)).toEqual(["/b"]);
});

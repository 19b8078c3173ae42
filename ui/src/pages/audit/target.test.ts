import { expect, test, vi } from "vitest";

vi.mock("../../router/router.svelte", () => ({
  pathOf: (...names: string[]) => `/${names.map(encodeURIComponent).join("/")}`,
}));

const { targetPath } = await import("./target");

test("a target with a page is linked", () => {
  expect(targetPath({ target: "node/gpu-1", action: "node.ping" })).toBe("/nodes/gpu-1");
  expect(targetPath({ target: "workload/a b", action: "workload.deploy" })).toBe("/workloads/a%20b");
});

test("deleted and other targets are not", () => {
  expect(targetPath({ target: "node/gpu-1", action: "node.delete" })).toBeUndefined();
  expect(targetPath({ target: "token/1", action: "token.create" })).toBeUndefined();
  expect(targetPath({ target: "server", action: "server.backup" })).toBeUndefined();
});

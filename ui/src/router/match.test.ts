import { describe, expect, it } from "vitest";

import { firstMatch, isOwnPath, matchPath } from "./match";

describe("matchPath", () => {
  it("returns decoded parameters", () => {
    expect(matchPath("/workloads/:workload", "/workloads/train")).toEqual({ workload: "train" });
    expect(matchPath("/workloads/:workload", "/workloads/a%2Fb/")).toEqual({ workload: "a/b" });
    expect(matchPath("/workloads", "/workloads")).toEqual({});
  });

  it("refuses other lengths, other words and broken encodings", () => {
    expect(matchPath("/workloads/:workload", "/workloads")).toBeUndefined();
    expect(matchPath("/workloads", "/nodes")).toBeUndefined();
    expect(matchPath("/workloads/:workload", "/workloads/%E0%A4%A")).toBeUndefined();
  });
});

it("firstMatch prefers the earlier entry", () => {
  const table = [{ path: "/apps/new" }, { path: "/apps/:app" }];
  expect(firstMatch(table, "/apps/new")?.entry).toBe(table[0]);
  expect(firstMatch(table, "/apps/rke2")?.params).toEqual({ app: "rke2" });
  expect(firstMatch(table, "/x/y/z")).toBeUndefined();
});

it("links to the server's own pages leave the shell", () => {
  for (const path of ["/api/docs", "/install.sh", "/docs/errors/x"]) expect(isOwnPath(path)).toBe(false);
  for (const path of ["/", "/workloads", "/apis", "/docsome"]) expect(isOwnPath(path)).toBe(true);
});

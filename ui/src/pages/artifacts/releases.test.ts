import { expect, test } from "vitest";

import type { Artifact } from "../../api/types";
import { releasesOf, verification } from "./releases";

function file(version: string, name: string, size: number): Artifact {
  return { app: "rke2", version, name, sha256: "0".repeat(64), size_bytes: size, stand_in: false };
}

test("files are grouped by release, the newest first", () => {
  const releases = releasesOf([file("v1.9.0", "a", 1), file("v1.10.0", "a", 2), file("v1.10.0", "b", 3)]);
  expect(releases.map((release) => [release.version, release.size, release.files.length])).toEqual([
    ["v1.10.0", 5, 2],
    ["v1.9.0", 1, 1],
  ]);
});

test("a release without verification is named as such", () => {
  expect(verification("nothing")).toEqual({ text: "Not verified", verified: false });
  expect(verification("key:ab12")).toEqual({ text: "Signed by key ab12", verified: true });
  expect(verification("sums-sha256:9f86")?.verified).toBe(true);
  expect(verification(undefined)).toBeUndefined();
});

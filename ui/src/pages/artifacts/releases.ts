//! Imported files, grouped by their release.

import type { Artifact } from "../../api/types";
import { compareNames } from "../../text/order";

export interface Release {
  app: string;
  version: string;
  standIn: boolean;
  verifiedBy: string | undefined;
  source: string | undefined;
  size: number;
  files: Artifact[];
}

/** Identity of a file: names are unique within a release. */
export function fileId(file: Pick<Artifact, "app" | "version" | "name">): string {
  return `${file.app} ${file.version} ${file.name}`;
}

/** Releases by app, the newest version first. */
export function releasesOf(artifacts: readonly Artifact[]): Release[] {
  const releases = new Map<string, Release>();
  for (const file of artifacts) {
    const key = `${file.app}\n${file.version}`;
    const known = releases.get(key) ?? begin(file);
    releases.set(key, { ...known, size: known.size + file.size_bytes, files: [...known.files, file] });
  }
  return [...releases.values()].sort((a, b) => compareNames(a.app, b.app) || compareNames(b.version, a.version));
}

function begin(file: Artifact): Release {
  return {
    app: file.app,
    version: file.version,
    standIn: file.stand_in,
    verifiedBy: file.verified_by ?? undefined,
    source: file.source ?? undefined,
    size: 0,
    files: [],
  };
}

/** How a release was verified, in words. */
export function verification(verifiedBy: string | undefined): { text: string; verified: boolean } | undefined {
  if (verifiedBy === undefined) return undefined;
  if (verifiedBy === "nothing") return { text: "Not verified", verified: false };
  if (verifiedBy.startsWith("key:")) return { text: `Signed by key ${verifiedBy.slice(4)}`, verified: true };
  if (verifiedBy.startsWith("sums-sha256:")) return { text: "By the digest of its checksums", verified: true };
  return { text: verifiedBy, verified: true };
}

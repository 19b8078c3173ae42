import { describe, expect, it } from "vitest";

import type { AuditChain, AuditVerification } from "../../api/types";
import { chainLook, defectText, furtherDefects, headText, LATE_AFTER_MS, verifiedText } from "./chain";

const NOW = Date.parse("2026-07-01T12:00:00.000Z");
const SEAL = { number: 2, at: "2026-07-01T11:59:00.000Z", digest: "ab".repeat(32), key: "ed25519-1" };

function chain(changes: Partial<AuditChain>): AuditChain {
  return { records: 9, sealed_until: 9, unsealed: 0, last_seal: SEAL, ...changes };
}

function since(ms: number): AuditChain {
  return chain({ unsealed: 1, unsealed_since: new Date(NOW - ms).toISOString() });
}

describe("chainLook", () => {
  it("distinguishes sealed records from those that wait for a seal", () => {
    expect(chainLook(chain({}), NOW).word).toBe("Sealed");
    expect(chainLook(since(1_000), NOW)).toMatchObject({ word: "Sealing soon", tone: "muted" });
    expect(chainLook(since(LATE_AFTER_MS + 1_000), NOW)).toMatchObject({ word: "Sealing is late", tone: "attention" });
    expect(chainLook({ records: 0, sealed_until: 0, unsealed: 0 }, NOW).word).toBe("Nothing to seal");
  });

  it("shows that the control plane seals nothing", () => {
    expect(chainLook(chain({ stopped: "audit seal 2 is gone" }), NOW)).toMatchObject({
      word: "Sealing has stopped",
      tone: "attention",
    });
  });

  it("waits where a time is missing", () => {
    expect(chainLook(chain({ unsealed: 1 }), NOW).word).toBe("Sealing soon");
  });
});

describe("verification", () => {
  const intact: AuditVerification = {
    result: "intact",
    records: 38_114,
    archived: 0,
    unsealed: 0,
    seals: 412,
    defects: [],
    defects_found: 0,
  };
  const missing = { kind: "missing", seal: 3, record: 21, detail: "record 21 is missing" } as const;

  it("names the head as the command takes it", () => {
    expect(headText({ seal: 412, digest: "ab12" })).toBe("412:ab12");
  });

  it("says what was verified", () => {
    expect(verifiedText(intact)).toBe("38,114 records and 412 seals");
    expect(verifiedText({ ...intact, unsealed: 1 })).toBe("38,114 records and 412 seals; 1 record not sealed yet");
    expect(verifiedText({ ...intact, result: "broken", defects: [missing], defects_found: 1 })).toBe(
      "38,114 records and 412 seals; 1 defect",
    );
  });

  it("names the other defects and how many it does not describe", () => {
    const changed = { kind: "changed", seal: 4, detail: "seal 4 cannot be read" } as const;
    const broken = { ...intact, result: "broken", defects: [missing, changed], defects_found: 2 } as const;
    expect(furtherDefects({ ...intact, defects: [missing], defects_found: 1 })).toEqual([]);
    const other = "Seal 4 or one of its records was changed.";
    expect(furtherDefects({ ...broken, defects: [missing, changed] })).toEqual([other]);
    expect(furtherDefects({ ...broken, defects: [missing, changed], defects_found: 9 })).toEqual([
      other,
      "And 7 more defects.",
    ]);
  });

  it("names the place of a defect", () => {
    const text = (kind: "changed" | "missing" | "added" | "signature", seal?: number, record?: number) =>
      defectText({ kind, detail: "", ...(seal !== undefined && { seal }), ...(record !== undefined && { record }) });
    expect(text("missing", 3, 21)).toBe("Record 21, of seal 3, is missing.");
    expect(text("missing", undefined, 21)).toBe("Record 21, after the last seal, is missing.");
    expect(text("changed", 3)).toBe("Seal 3 or one of its records was changed.");
    expect(text("added", 3)).toBe("Seal 3 or one of its records was added later.");
    expect(text("signature", 3)).toBe("Seal 3 or one of its records has no valid signature.");
  });
});

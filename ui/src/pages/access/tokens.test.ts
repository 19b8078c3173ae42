import { expect, test } from "vitest";

import type { Token } from "../../api/types";
import { ACCOUNT_LIFETIMES, TOKEN_LIFETIMES } from "./lifetimes";
import { isPlatformRole, matches, tokenState } from "./tokens";

const at = "2026-07-01T12:00:00Z";
const token: Token = { id: "1", name: "ann", role: "viewer", created_at: at, expires_at: "2026-08-01T12:00:00Z" };

test("a token is valid until it expires or is revoked", () => {
  const now = Date.parse("2026-07-02T12:00:00Z");
  expect(tokenState(token, now)).toBe("valid");
  expect(tokenState(token, Date.parse("2026-08-01T12:00:00Z"))).toBe("expired");
  expect(tokenState({ ...token, revoked_at: at }, now)).toBe("revoked");
});

test("a filter finds every word, in any of the texts", () => {
  expect(matches("ANN  view", "Ann Onym", null, "viewer")).toBe(true);
  expect(matches("", undefined)).toBe(true);
  expect(matches("ann admin", "ann", "viewer")).toBe(false);
});

test("only roles of the platform need no project", () => {
  expect(isPlatformRole("platform-metrics")).toBe(true);
  expect(isPlatformRole("project-admin")).toBe(false);
});

test("tokens of service accounts live for 30 days at most", () => {
  expect(Math.max(...ACCOUNT_LIFETIMES)).toBe(2_592_000);
  expect(Math.max(...TOKEN_LIFETIMES)).toBe(31_536_000);
});

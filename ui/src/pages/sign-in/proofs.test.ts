import { expect, it } from "vitest";

import { proofName } from "./proofs";

it("a proof is named by what the API says, also one that the page does not know", () => {
  expect(["token", "sign_in_link", "identity_provider", "constructor"].map(proofName)).toEqual([
    "a token",
    "a sign-in link",
    "identity provider",
    "constructor",
  ]);
});

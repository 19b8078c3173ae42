import { expect, it } from "vitest";

import { credentialFrom } from "./credential";

it("tells a link from a token", () => {
  expect(credentialFrom(" https://cp.example:7443/#sign-in=abc-1 ")).toEqual({ code: "abc-1" });
  expect(credentialFrom("https://cp.example:7443/#sign-in=%")).toEqual({ code: "%" });
  expect(credentialFrom("gpuaas-link_abc")).toEqual({ code: "gpuaas-link_abc" });
  expect(credentialFrom("gpuaas_token")).toEqual({ token: "gpuaas_token" });
});

it("takes nothing for no credential", () => {
  expect(credentialFrom("   ")).toBeUndefined();
  expect(credentialFrom("two words")).toBeUndefined();
});

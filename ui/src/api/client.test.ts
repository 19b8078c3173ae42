import { beforeEach, expect, it, vi } from "vitest";

import { api, credentials } from "./client";

const lost = vi.fn();
const refusal = {
  baseUrl: "https://gpuaas.test",
  fetch: () => Promise.resolve(Response.json({ code: "unauthenticated", detail: "no session" }, { status: 401 })),
};

beforeEach(() => {
  lost.mockClear();
  credentials.onSessionLost = lost;
});

it("a request without a session reports that it is lost", async () => {
  await api.GET("/api/v1/session", refusal);
  expect(lost).toHaveBeenCalledOnce();
});

it("a refused sign-in ends no session", async () => {
  await api.POST("/api/v1/sessions", { ...refusal, body: { code: "used" } });
  expect(lost).not.toHaveBeenCalled();
});

import { beforeEach, expect, it, vi } from "vitest";

import { api, credentials, takeTagged } from "./client";

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

function readingWith(headers: Record<string, string>) {
  const fetch = () => Promise.resolve(Response.json({ name: "gpu-1" }, { headers }));
  return takeTagged(api.GET("/api/v1/nodes/{node}", { ...refusal, fetch, params: { path: { node: "1" } } }));
}

it("a reading has the tag as the control plane made it, also behind a proxy that made it weak", async () => {
  expect((await readingWith({ etag: '"1.7-ab"' })).etag).toBe('"1.7-ab"');
  expect(await readingWith({ etag: 'W/"1.7-ab"' })).toMatchObject({ etag: '"1.7-ab"', value: { name: "gpu-1" } });
});

it("a reading without a tag is a failed one", async () => {
  await expect(readingWith({})).rejects.toMatchObject({ problem: { code: "answer_unreadable" } });
});

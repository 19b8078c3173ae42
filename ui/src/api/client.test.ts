import { beforeEach, expect, it, vi } from "vitest";

import { api, credentials, reading, takeTagged } from "./client";
import { hold } from "./hold";

const lost = vi.fn();
const at = { baseUrl: "https://gpuaas.test" };
const sent: string[] = [];
let answers: Response[] = [];

const refused = (): Response => Response.json({ code: "unauthenticated", detail: "no session" }, { status: 401 });

beforeEach(() => {
  hold.end(false);
  lost.mockReset();
  credentials.onSessionLost = lost;
  credentials.csrf = "";
  sent.length = 0;
  answers = [];
  vi.stubGlobal("fetch", ({ method, url, headers }: Request) => {
    sent.push(`${method} ${new URL(url).pathname} ${headers.get("x-gpuaas-csrf") ?? ""}`.trim());
    return Promise.resolve(answers.shift() ?? refused());
  });
});

it("a request without a session reports that it is lost", async () => {
  await api.GET("/api/v1/session", at);
  expect(lost).toHaveBeenCalledOnce();
});

it("a refused sign-in ends no session", async () => {
  await api.POST("/api/v1/sessions", { ...at, body: { code: "used" } });
  expect(lost).not.toHaveBeenCalled();
});

it("what a page reads is read again once the same person has signed in", async () => {
  lost.mockImplementation(() => hold.begin());
  answers = [refused(), Response.json({ items: [] })];
  const read = api.GET("/api/v1/apps", at);
  await vi.waitFor(() => expect(lost).toHaveBeenCalledOnce());
  // A page that is covered asks for nothing.
  const later = api.GET("/api/v1/tokens", at);
  await new Promise((resolve) => setTimeout(resolve));
  expect(sent).toEqual(["GET /api/v1/apps"]);
  answers.push(Response.json({ items: [] }));
  hold.end(true);
  expect([(await read).response.status, (await later).response.status]).toEqual([200, 200]);
  expect(sent.slice(1).sort()).toEqual(["GET /api/v1/apps", "GET /api/v1/tokens"]);
  expect(lost).toHaveBeenCalledOnce();
});

it("nothing that a page asked for is sent after somebody else has signed in", async () => {
  lost.mockImplementation(() => hold.begin());
  const read = api.GET("/api/v1/apps", at).then(
    () => "read",
    (thrown: DOMException) => thrown.name,
  );
  await vi.waitFor(() => expect(hold.isOn).toBe(true));
  hold.end(false);
  expect(await read).toBe("AbortError");
  expect(sent).toHaveLength(1);
});

it("a change is not repeated, and carries the token of the session in which it is sent", async () => {
  lost.mockImplementation(() => hold.begin());
  credentials.csrf = "first";
  expect((await api.POST("/api/v1/projects", { ...at, body: { name: "ml" } })).response.status).toBe(401);
  hold.end(true);
  credentials.csrf = "second";
  answers = [Response.json({}, { status: 201 })];
  await api.POST("/api/v1/projects", { ...at, body: { name: "ml" } });
  expect(sent).toEqual(["POST /api/v1/projects first", "POST /api/v1/projects second"]);
});

it("a refusal that arrives after a new sign-in ends no session", async () => {
  let attempts = 0;
  const answered = await reading(() => {
    attempts += 1;
    if (attempts > 1) return Promise.resolve(new Response("read"));
    hold.begin();
    hold.end(true);
    return Promise.resolve(refused());
  });
  expect([await answered.text(), attempts]).toEqual(["read", 2]);
  expect(lost).not.toHaveBeenCalled();
});

it("what was asked for before somebody else signed in is not sent again when it is refused", async () => {
  let attempts = 0;
  const answered = reading(() => {
    attempts += 1;
    if (attempts === 1) hold.end(false);
    return Promise.resolve(refused());
  });
  await expect(answered).rejects.toMatchObject({ name: "AbortError" });
  expect(attempts).toBe(1);
  expect(lost).not.toHaveBeenCalled();
});

function readingWith(headers: Record<string, string>) {
  const fetch = () => Promise.resolve(Response.json({ name: "gpu-1" }, { headers }));
  return takeTagged(api.GET("/api/v1/nodes/{node}", { ...at, fetch, params: { path: { node: "1" } } }));
}

it("a reading has the tag as the control plane made it, also behind a proxy that made it weak", async () => {
  expect((await readingWith({ etag: '"1.7-ab"' })).etag).toBe('"1.7-ab"');
  expect(await readingWith({ etag: 'W/"1.7-ab"' })).toMatchObject({ etag: '"1.7-ab"', value: { name: "gpu-1" } });
});

it("a reading without a tag is a failed one", async () => {
  await expect(readingWith({})).rejects.toMatchObject({ problem: { code: "answer_unreadable" } });
});

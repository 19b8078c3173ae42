import { beforeEach, expect, it, vi } from "vitest";

import { hub } from "../live/hub.svelte";
import { api, credentials } from "./client";
import { hold } from "./hold";
import { KEPT_CHECK_MS, KEPT_MS, RETRY_MS, session } from "./session.svelte";
import type { Project } from "./types";

const project = (name: string): Project => ({ id: `id-of-${name}`, name }) as Project;
const followed: (string | undefined)[] = [];

const replaced = vi.fn();
const TOKEN = "token-1";

/** Answers the next requests for the session, as if it had this id and CSRF token. */
function answer(id: string | undefined, projects: Project[], csrf: string | undefined = "c", own?: string): void {
  answerAs(TOKEN, { id, projects, csrf, project: own });
}

/** Answers them as if the session belonged to this token. */
function answerAs(token: string, more: object): void {
  const data = { id: "session-9", user: "ann", role: "project-admin", permissions: [], projects: [], csrf: "c" };
  const answered = { data: { ...data, token, ...more }, response: new Response() } as never;
  vi.spyOn(api, "GET").mockResolvedValue(answered);
  vi.spyOn(api, "POST").mockResolvedValue(answered);
}

beforeEach(async () => {
  vi.spyOn(hub, "connect").mockImplementation((name) => void followed.push(name));
  session.onReplaced = replaced;
  replaced.mockClear();
  answer("session-1", [project("ml"), project("research")]);
  await session.signIn({ token: "t" });
  session.choose("ml");
  followed.length = 0;
});

it("a project that is not there is not replaced by another one", () => {
  session.choose("gone");
  expect([session.project, session.isProjectUnknown]).toEqual(["gone", true]);
  session.choose(undefined);
  expect([session.project, session.isProjectUnknown]).toEqual(["ml", false]);
});

it("an address without a project keeps the choice", () => {
  session.choose("research");
  session.choose(undefined);
  expect(session.project).toBe("research");
  expect(session.nameOfProject("id-of-ml")).toBe("ml");
});

it("the streams begin again for another project and one that was made again, not for a new session", async () => {
  session.choose("research");
  expect(followed).toEqual(["research"]);
  await session.load();
  answer("session-2", [project("ml"), project("research")]);
  await session.load();
  expect(followed).toHaveLength(1);
  answer("session-2", [project("ml"), { ...project("research"), id: "another" }]);
  await session.load();
  expect(followed).toEqual(["research", "research"]);
});

it("after the chosen project was deleted, another one is chosen", () => {
  session.choose("research");
  session.forgetProject("id-of-research");
  expect([session.project, session.isProjectUnknown]).toEqual(["ml", false]);
  expect(followed.at(-1)).toBe("ml");
});

it("a command line names the project unless the token belongs to one", async () => {
  expect([session.projectOfLine(), session.projectOfLine("research")]).toEqual(["ml", "research"]);
  answer("session-2", [project("ml")], "c", "id-of-ml");
  await session.load();
  expect([session.projectOfLine(), session.projectOfLine("ml")]).toEqual([undefined, undefined]);
});

it("an answer without a session of this browser signs nobody in", async () => {
  for (const [id, csrf] of [
    [undefined, "c"],
    ["session-2", ""],
  ] as const) {
    answer(id, [], csrf);
    await expect(session.signIn({ token: "t" })).rejects.toMatchObject({ problem: { code: "answer_unreadable" } });
  }
  expect([session.id, session.project]).toEqual(["session-1", "ml"]);
});

it("a page whose session ended is kept, covered, and continues when the same person has signed in", async () => {
  const disconnect = vi.spyOn(hub, "disconnect");
  credentials.onSessionLost();
  expect([session.status, session.isCovered, session.hasPage, hold.isOn]).toEqual(["signed_out", true, true, true]);
  expect([session.user, session.project, credentials.csrf]).toEqual(["ann", "ml", ""]);
  const waiting = hold.over();
  answer("session-2", [project("ml")], "another");
  await session.signIn({ token: "t" });
  expect([session.status, session.isCovered, credentials.csrf, await waiting]).toEqual([
    "signed_in",
    false,
    "another",
    true,
  ]);
  expect([followed, replaced.mock.calls, disconnect.mock.calls]).toEqual([[], [], []]);
});

it("nothing of a page stays when somebody else signs in, also one of the same name", async () => {
  for (const end of [(): void => undefined, (): void => credentials.onSessionLost()]) {
    end();
    const waiting = hold.over();
    const wasHeld = hold.isOn;
    answerAs("token-2", {});
    await session.signIn({ token: "t" });
    expect(replaced).toHaveBeenCalledOnce();
    expect([session.status, session.hasPage, session.user, await waiting]).toEqual(["unknown", false, "", !wasHeld]);
    answer("session-1", [project("ml")]);
    await session.signIn({ token: "t" });
    replaced.mockClear();
  }
});

it("nothing of a page stays after a sign-out, nor for somebody else who comes after it", async () => {
  vi.spyOn(api, "DELETE").mockResolvedValue({ data: {}, response: new Response() } as never);
  await session.signOut();
  expect([session.status, session.hasPage, session.ended, session.user]).toEqual(["signed_out", false, false, ""]);
  answerAs("token-2", {});
  await session.load();
  expect(replaced).toHaveBeenCalledOnce();
});

it("a covered page is not kept for longer than an hour", () => {
  vi.useFakeTimers();
  credentials.onSessionLost();
  vi.advanceTimersByTime(KEPT_MS - 1);
  expect(session.isCovered).toBe(true);
  vi.advanceTimersByTime(1);
  expect([session.isCovered, session.hasPage, session.ended, hold.isOn]).toEqual([false, false, true, false]);
  vi.useRealTimers();
});

it("a covered page ages while the computer sleeps", () => {
  vi.useFakeTimers();
  credentials.onSessionLost();
  vi.setSystemTime(Date.now() + KEPT_MS);
  vi.advanceTimersByTime(KEPT_CHECK_MS);
  expect([session.isCovered, session.hasPage]).toEqual([false, false]);
  vi.useRealTimers();
});

/** An answer that arrives when `arrive` is called. */
function late(): { answered: never; arrive: (answer: object) => void } {
  let arrive: (answer: object) => void = () => undefined;
  const answered = new Promise<object>((resolve) => (arrive = resolve));
  return { answered: answered as never, arrive: (answer) => arrive(answer) };
}

it("an answer from before a sign-in or a sign-out says nothing", async () => {
  const refused = late();
  vi.spyOn(api, "GET").mockReturnValue(refused.answered);
  const first = session.load();
  answer("session-2", [project("ml")]);
  await session.signIn({ token: "t" });
  refused.arrive({ error: {}, response: new Response(undefined, { status: 401 }) });
  await first;
  expect([session.status, session.isCovered, session.id]).toEqual(["signed_in", false, "session-2"]);

  const outdated = late();
  vi.spyOn(api, "GET").mockReturnValue(outdated.answered);
  const second = session.load();
  vi.spyOn(api, "DELETE").mockResolvedValue({ data: {}, response: new Response() } as never);
  await session.signOut();
  outdated.arrive({ data: { id: "session-2", csrf: "c", token: TOKEN, projects: [] }, response: new Response() });
  await second;
  expect([session.status, session.hasPage]).toEqual(["signed_out", false]);
});

it("of two sign-ins at the same time, the cookie says which was the last", async () => {
  const earlier = late();
  vi.spyOn(api, "POST").mockReturnValue(earlier.answered);
  const signedIn = session.signIn({ token: "t" });
  // Another tab says that somebody signed in there.
  await session.load();
  const last = { id: "session-3", csrf: "c", token: TOKEN, permissions: [], projects: [] };
  vi.spyOn(api, "GET").mockResolvedValue({ data: last, response: new Response() } as never);
  earlier.arrive({ data: { ...last, id: "session-2" }, response: new Response() });
  await signedIn;
  expect(session.id).toBe("session-3");
});

it("an open page asks again until it knows whose session the browser has", async () => {
  vi.useFakeTimers();
  vi.spyOn(api, "GET").mockRejectedValue(new TypeError("offline"));
  await session.load();
  expect([session.status, replaced.mock.calls]).toEqual(["signed_in", []]);
  answerAs("token-2", {});
  await vi.advanceTimersByTimeAsync(RETRY_MS);
  expect(replaced).toHaveBeenCalledOnce();
  vi.useRealTimers();
});

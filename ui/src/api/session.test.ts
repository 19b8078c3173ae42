import { beforeEach, expect, it, vi } from "vitest";

import { hub } from "../live/hub.svelte";
import { api } from "./client";
import { session } from "./session.svelte";
import type { Project } from "./types";

const project = (name: string): Project => ({ id: `id-of-${name}`, name }) as Project;
const followed: (string | undefined)[] = [];

/** Answers the next requests for the session, as if it had this id and CSRF token. */
function answer(id: string | undefined, projects: Project[], csrf: string | undefined = "c", own?: string): void {
  const data = { id, user: "ann", role: "project-admin", permissions: [], projects, csrf, project: own };
  const answered = { data, response: new Response() } as never;
  vi.spyOn(api, "GET").mockResolvedValue(answered);
  vi.spyOn(api, "POST").mockResolvedValue(answered);
}

beforeEach(async () => {
  vi.spyOn(hub, "connect").mockImplementation((name) => void followed.push(name));
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

it("the streams begin again for another project, another session, and a project that was made again", async () => {
  session.choose("research");
  expect(followed).toEqual(["research"]);
  await session.load();
  expect(followed).toHaveLength(1);
  answer("session-2", [project("ml"), project("research")]);
  await session.load();
  expect(followed).toHaveLength(2);
  answer("session-2", [project("ml"), { ...project("research"), id: "another" }]);
  await session.load();
  expect(followed).toEqual(["research", "research", "research"]);
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

import { expect, it } from "vitest";

import { ProblemError, unreachable } from "./problem";
import { Submission } from "./submission.svelte";

it("a second click while the request runs sends nothing", async () => {
  const submission = new Submission();
  let sent = 0;
  let finish: (value: string) => void = () => undefined;
  const send = () => {
    sent += 1;
    return new Promise<string>((resolve) => (finish = resolve));
  };
  const first = submission.run({ a: 1 }, send);
  expect(await submission.run({ a: 1 }, send)).toBeUndefined();
  finish("done");
  expect(await first).toBe("done");
  expect(sent).toBe(1);
});

it("repeats a request that may have run with the same key, and a changed one with another", async () => {
  const submission = new Submission();
  const keys: string[] = [];
  const fail = (_body: unknown, key: string) => {
    keys.push(key);
    return Promise.reject(unreachable());
  };
  await submission.run({ a: 1 }, fail);
  await submission.run({ a: 1 }, fail);
  await submission.run({ a: 2 }, fail);
  expect(keys[0]).toBe(keys[1]);
  expect(keys[2]).not.toBe(keys[0]);
  expect(submission.problem?.code).toBe("server_unreachable");
});

it("a refused request gets a new key", async () => {
  const submission = new Submission();
  const keys: string[] = [];
  const refuse = (_body: unknown, key: string) => {
    keys.push(key);
    return Promise.reject(new ProblemError({ ...unreachable().problem, status: 422, code: "field_invalid" }));
  };
  await submission.run({ a: 1 }, refuse);
  await submission.run({ a: 1 }, refuse);
  expect(keys[0]).not.toBe(keys[1]);
});

it("a request that a lost session refused says that nothing was done, and can be sent again", async () => {
  const submission = new Submission();
  const refused = { ...unreachable().problem, status: 401, code: "unauthenticated", next: "sign in again" };
  await submission.run({}, () => Promise.reject(new ProblemError(refused)));
  expect(submission.problem).toMatchObject({ code: "unauthenticated", next: "Send it again." });
  expect(await submission.run({}, () => Promise.resolve("done"))).toBe("done");
  // A refused credential is no lost session.
  await submission.run({}, () => Promise.reject(new ProblemError({ ...refused, code: "sign_in_invalid" })));
  expect(submission.problem?.next).toBe("sign in again");
});

import { expect, it } from "vitest";

import { Change, type ChangeHeader, type Subject } from "./change.svelte";
import type { Tagged } from "./client";
import { ProblemError, unreachable } from "./problem";

interface Lamp {
  state: string;
  place: string;
}

const problem = (status: number, code: string): ProblemError =>
  new ProblemError({ ...unreachable().problem, status, code, detail: code });
const deferred = (): { promise: Promise<void>; settle: () => void } => {
  let settle: () => void = () => undefined;
  const promise = new Promise<void>((resolve) => (settle = resolve));
  return { promise, settle };
};

/** A control plane with one lamp. It refuses every request that does not name the present reading. */
class Server {
  lamp: Lamp = { state: "on", place: "hall" };
  revision = 1;
  isAway = false;
  /** Holds readings back until it settles. */
  delay: Promise<void> = Promise.resolve();
  readonly headers: ChangeHeader[] = [];
  readonly subject: Subject<Lamp> = {
    name: "The lamp",
    read: () => this.#read(),
    facts: ({ state, place }) => ({ "The lamp": state, "Its place": place }),
  };

  readonly send = async (_body: unknown, header: ChangeHeader): Promise<string> => {
    this.headers.push(header);
    if (header["If-Match"] !== `"${this.revision}"`) throw problem(412, "precondition_failed");
    return "done";
  };

  /** Another person changes the lamp; `undefined` changes something that its facts do not show. */
  become(lamp: Partial<Lamp> = {}): void {
    this.lamp = { ...this.lamp, ...lamp };
    this.revision += 1;
  }

  async #read(): Promise<Tagged<Lamp>> {
    await this.delay;
    if (this.isAway) throw unreachable();
    return { value: this.lamp, etag: `"${this.revision}"` };
  }
}

async function opened(check?: () => Promise<unknown>): Promise<{ server: Server; change: Change<Lamp> }> {
  const server = new Server();
  const change = new Change(server.subject, check);
  await change.look();
  return { server, change };
}

const keys = (server: Server): string[] => server.headers.map((header) => header["Idempotency-Key"]);

it("the request names the reading that the dialog shows", async () => {
  const { server, change } = await opened();
  expect([change.seen?.value.state, change.reason]).toEqual(["on", undefined]);
  expect(await change.run("off", server.send)).toBe("done");
  expect(server.headers[0]?.["If-Match"]).toBe('"1"');
});

it("what changed after the dialog was opened is not overridden unseen", async () => {
  const { server, change } = await opened();
  server.become({ state: "broken" });
  expect(await change.run("off", server.send)).toBeUndefined();
  expect(change.seen?.value.state).toBe("broken");
  expect(change.isStale).toBe(true);
  expect(change.changed).toEqual({
    summary: "The lamp has changed. Nothing was done.",
    facts: ["The lamp is now broken; it was on when you opened this dialog."],
  });
  // The person decides again.
  expect(await change.run("off", server.send)).toBe("done");
  expect(server.headers.map((header) => header["If-Match"])).toEqual(['"1"', '"2"']);
  expect(new Set(keys(server)).size).toBe(2);
  expect(change.changed).toBeUndefined();
});

it("a second refusal is compared with what the dialog showed last, and each request has a key of its own", async () => {
  const { server, change } = await opened();
  server.become({ state: "broken" });
  await change.run("off", server.send);
  server.become({ place: "attic" });
  await change.run("off", server.send);
  expect(change.changed?.facts).toEqual(["Its place is now attic; it was hall when you last looked."]);
  expect(await change.run("off", server.send)).toBe("done");
  expect(new Set(keys(server)).size).toBe(3);
});

it("a change of what is not shown is still a change", async () => {
  const { server, change } = await opened();
  server.become();
  await change.run("off", server.send);
  expect(change.changed).toEqual({
    summary: "The lamp has changed in something that is not shown here. Nothing was done.",
    facts: [],
  });
});

it("without a reading nothing is sent, and the reading can be repeated", async () => {
  const server = new Server();
  const change = new Change(server.subject);
  expect(await change.run("off", server.send)).toBeUndefined();
  server.isAway = true;
  await change.look();
  expect([change.unread?.code, change.seen]).toEqual(["server_unreachable", undefined]);
  expect(change.reason).toBe("The lamp could not be read. Try again first.");
  expect(await change.run("off", server.send)).toBeUndefined();
  expect(server.headers).toEqual([]);

  server.isAway = false;
  await change.look();
  expect([change.unread, change.reason]).toEqual([undefined, undefined]);
  expect(await change.run("off", server.send)).toBe("done");
});

it("a refusal after which the reading fails is explained, and blocks until it was read", async () => {
  const { server, change } = await opened();
  server.become({ state: "broken" });
  server.isAway = true;
  await change.run("off", server.send);
  expect(change.changed).toEqual({ summary: "The lamp has changed. Nothing was done.", facts: [] });
  expect([change.unread?.code, change.reason]).toEqual([
    "server_unreachable",
    "The lamp could not be read. Try again first.",
  ]);
  await change.run("off", server.send);
  expect(server.headers).toHaveLength(1);

  server.isAway = false;
  await change.look();
  expect(change.changed?.facts).toEqual(["The lamp is now broken; it was on when you opened this dialog."]);
});

it("a reading that fails later blocks too, instead of the earlier one being used", async () => {
  const { server, change } = await opened();
  server.isAway = true;
  await change.look();
  expect(await change.run("off", server.send)).toBeUndefined();
  expect([change.seen, server.headers]).toEqual([undefined, []]);

  // Nothing was sent, so no request is mentioned.
  server.isAway = false;
  server.become({ state: "broken" });
  await change.look();
  expect(change.changed?.summary).toBe("The lamp has changed.");
});

it("a click while the request or a reading runs sends nothing", async () => {
  const { server, change } = await opened();
  const [first, second] = await Promise.all([change.run("off", server.send), change.run("off", server.send)]);
  expect([first, second]).toEqual(["done", undefined]);
  expect(server.headers).toHaveLength(1);

  const { promise, settle } = deferred();
  server.delay = promise;
  const looking = change.look();
  expect(change.reason).toBeDefined();
  expect(await change.run("off", server.send)).toBeUndefined();
  settle();
  await looking;
  expect(server.headers).toHaveLength(1);
});

it("while the thing is read again after a refusal, the dialog already says why, and sends nothing", async () => {
  const { server, change } = await opened();
  server.become({ state: "broken" });
  const { promise, settle } = deferred();
  server.delay = promise;
  const refused = change.run("off", server.send);
  await expect.poll(() => change.isLooking).toBe(true);
  expect(change.changed).toEqual({ summary: "The lamp has changed. Nothing was done.", facts: [] });
  expect(await change.run("off", server.send)).toBeUndefined();
  settle();
  await refused;
  expect(server.headers).toHaveLength(1);
});

it("a request whose answer was lost is repeated as it was, and may be what changed the thing", async () => {
  const { server, change } = await opened();
  await change.run("off", async (_, header) => {
    server.headers.push(header);
    server.become({ state: "off" });
    throw unreachable();
  });
  expect([change.isStale, change.changed]).toEqual([false, undefined]);
  await change.run("off", server.send);
  expect(server.headers[1]).toEqual(server.headers[0]);
  expect(change.changed).toEqual({
    summary: "The lamp has changed. An earlier request of this dialog, which failed, may have done that.",
    facts: ["The lamp is now off; it was on when you opened this dialog."],
  });
});

it("after a lost answer, a request about a newer reading is another one", async () => {
  const { server, change } = await opened();
  await change.run("off", async (_, header) => {
    server.headers.push(header);
    throw unreachable();
  });
  server.become({ place: "attic" });
  await change.look();
  expect(change.changed).toEqual({
    summary: "The lamp has changed. An earlier request of this dialog, which failed, may have done that.",
    facts: ["Its place is now attic; it was hall when you opened this dialog."],
  });
  expect(await change.run("off", server.send)).toBe("done");
  expect(new Set(keys(server)).size).toBe(2);
});

it("a refusal although nothing has changed is no change, and shows what the control plane said", async () => {
  const { change } = await opened();
  await change.run("off", () => Promise.reject(problem(412, "precondition_failed")));
  expect([change.isStale, change.changed]).toEqual([false, undefined]);
  expect(change.submission.problem?.code).toBe("precondition_failed");
});

it("the dry run is asked again after a refusal, about the thing as it is now", async () => {
  let asked = 0;
  const { server, change } = await opened(() => {
    asked += 1;
    return asked === 1 ? Promise.resolve() : Promise.reject(problem(409, "state_conflict"));
  });
  expect(change.refused).toBeUndefined();
  server.become({ state: "broken" });
  await change.run("off", server.send);
  expect([asked, change.refused?.code, change.isStale]).toEqual([2, "state_conflict", true]);
});

it("a change without a subject names no reading", async () => {
  const headers: ChangeHeader[] = [];
  const change = new Change(undefined);
  await change.look();
  expect(await change.run("off", async (_, header) => headers.push(header))).toBe(1);
  expect(Object.keys(headers[0] ?? {})).toEqual(["Idempotency-Key"]);
});

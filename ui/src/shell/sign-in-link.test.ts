import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { api } from "../api/client";
import { session } from "../api/session.svelte";
import { hub } from "../live/hub.svelte";
import { signInLink } from "./sign-in-link.svelte";

const sent: unknown[] = [];
let refused = false;
let changed: () => void = () => undefined;

function open(hash: string): void {
  vi.stubGlobal("location", { hash, pathname: "/workloads", search: "" });
  changed();
}

beforeEach(() => {
  sent.length = 0;
  refused = false;
  vi.spyOn(hub, "connect").mockImplementation(() => undefined);
  vi.stubGlobal("history", { replaceState: vi.fn() });
  vi.stubGlobal("location", { hash: "", pathname: "/workloads", search: "" });
  vi.stubGlobal("window", { addEventListener: (_: string, run: () => void) => (changed = run) });
  const post = (_: string, { body }: { body: unknown }): Promise<unknown> => {
    sent.push(body);
    const data = { id: "s", user: "ann", permissions: [], projects: [], csrf: "c" };
    const error = { code: "sign_in_invalid", detail: "used" };
    const response = new Response(null, { status: refused ? 401 : 201 });
    return Promise.resolve(refused ? { error, response } : { data, response });
  };
  vi.spyOn(api, "POST").mockImplementation(post as never);
  session.status = "signed_out";
  signInLink.take();
});

afterEach(() => signInLink.discard());

it("a link signs in a browser that is not signed in, once, and leaves the address first", async () => {
  open("#sign-in=abc-_1");
  expect(history.replaceState).toHaveBeenCalledWith(null, "", "/workloads");
  signInLink.settle();
  signInLink.settle();
  await vi.waitFor(() => expect(session.status).toBe("signed_in"));
  expect(sent).toEqual([{ code: "abc-_1" }]);
});

it("a link replaces a session only after a question", async () => {
  session.status = "signed_in";
  open("#sign-in=somebody-elses");
  signInLink.settle();
  expect([signInLink.asks, sent]).toEqual([true, []]);
  // The session may end while the question is open: the link still waits for its answer.
  session.status = "signed_out";
  signInLink.settle();
  expect(sent).toEqual([]);
  signInLink.discard();
  await signInLink.exchange();
  expect([signInLink.waits, sent]).toEqual([false, []]);
});

it("a broken code is refused like any other", async () => {
  refused = true;
  open("#sign-in=%");
  signInLink.settle();
  await vi.waitFor(() => expect(signInLink.problem?.code).toBe("sign_in_invalid"));
  expect(sent).toEqual([{ code: "%" }]);
});

import { expect, it, vi } from "vitest";

import { credentials } from "../api/client";
import { hold } from "../api/hold";
import type { Event } from "../api/types";
import { EventStream, type StreamState } from "./stream";

type Step = (request: { url: string; lastId: string | null }) => Response;

/** Runs a stream against answers, one for each connection; it is stopped with the last. */
async function follow(steps: Step[]) {
  const requests: { url: string; lastId: string | null }[] = [];
  const seen: number[] = [];
  const states: StreamState[] = [];
  const openings: boolean[] = [];
  let heard = 0;
  const stream: EventStream = new EventStream(
    "research",
    {
      state: (state) => {
        states.push(state);
        if (state === "lost") queueMicrotask(() => stream.retry());
      },
      heard: () => (heard += 1),
      opened: (complete) => openings.push(complete),
      events: (events: Event[]) => seen.push(...events.map((event) => event.sequence)),
    },
    (input, init) => {
      const request = { url: String(input), lastId: new Headers(init?.headers).get("last-event-id") };
      requests.push(request);
      const step = steps[requests.length - 1];
      if (step === undefined) {
        stream.stop();
        return Promise.reject(new Error("stopped"));
      }
      return Promise.resolve().then(() => step(request));
    },
  );
  await stream.run();
  return { requests, seen, states, openings, heard };
}

function answer(...sequences: number[]): Response {
  return new Response(sequences.map((sequence) => `id: ${sequence}\ndata: {"sequence":${sequence}}\n\n`).join(""));
}

it("resumes after the last received number", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout"], shouldAdvanceTime: true });
  const { requests, seen, openings } = await follow([() => answer(41, 42), () => answer(43)]);
  expect(seen).toEqual([41, 42, 43]);
  expect(requests[0]?.url).toContain("from_now=true");
  expect(requests.map((request) => request.lastId)).toEqual([null, "42", "43"]);
  expect(openings).toEqual([false, true]);
});

it("asks again without a number when events were removed in between", async () => {
  const { requests, openings } = await follow([
    () => answer(7),
    () => new Response("{}", { status: 410 }),
    () => answer(900),
  ]);
  expect(requests.map((request) => request.lastId)).toEqual([null, "7", null, "900"]);
  expect(openings).toEqual([false, false]);
});

it("is lost while the server is away, and live again afterwards", async () => {
  const away: Step = () => {
    throw new TypeError("network");
  };
  const { states } = await follow([() => answer(1), away, () => answer(2)]);
  expect(states).toEqual(["connecting", "live", "lost", "lost", "live", "lost"]);
});

it("waits while nobody is signed in, and continues after the last event in the next session", async () => {
  let lost = 0;
  credentials.onSessionLost = () => {
    lost += 1;
    hold.begin();
    // Somebody signs in.
    setTimeout(() => hold.end(true));
  };
  const refused: Step = () => Response.json({ code: "unauthenticated", detail: "ended" }, { status: 401 });
  const { requests, seen, openings } = await follow([() => answer(41), refused, () => answer(42)]);
  expect([seen, openings, lost]).toEqual([[41, 42], [false, true], 1]);
  expect(requests.map((request) => request.lastId)).toEqual([null, "41", "41", "42"]);
});

it("a comment says that nothing is missing until now, too", async () => {
  const { heard, seen } = await follow([() => new Response(": alive\n\n")]);
  expect([heard, seen]).toEqual([2, []]);
});

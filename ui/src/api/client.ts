//! The typed client of the public API.
//!
//! Guarantees: every request that changes something carries the session's CSRF token; a missing session is reported to [`onSessionLost`], and
//! what was to be read is read once the same person has signed in; a failure is always a [`ProblemError`].

import createClient from "openapi-fetch";

import { clock } from "../live/clock";
import { hold } from "./hold";
import { problemFrom, unreachable, unreadable } from "./problem";
import type { paths } from "./schema";
import type { ListPage } from "./types";
import { pageUse } from "./use";

/** What the session lends the client. */
export const credentials = {
  csrf: "",
  onSessionLost: (): void => undefined,
  onCsrfRefused: (): void => undefined,
};

const READS = new Set(["GET", "HEAD"]);

/** Adds the CSRF token to the headers of a request that changes something, and says if nobody uses the page. */
export function authorize(headers: Headers, method: string): void {
  if (pageUse.isIdle) headers.set("x-gpuaas-idle", "1");
  if (!READS.has(method) && credentials.csrf !== "") headers.set("x-gpuaas-csrf", credentials.csrf);
}

/** Learns from every answer: the server's time, and whether the session still counts. */
async function inspect(response: Response): Promise<void> {
  clock.observe(response.headers.get("date"));
  if (response.status === 401) credentials.onSessionLost();
  if (response.status === 403 && (await codeOf(response)) === "csrf_missing") credentials.onCsrfRefused();
}

async function codeOf(response: Response): Promise<unknown> {
  const body: unknown = await response
    .clone()
    .json()
    .catch(() => undefined);
  return typeof body === "object" && body !== null && "code" in body ? body.code : undefined;
}

/**
 * Sends a request that only reads. It waits while the sign-in covers the page. If the session has ended, it is sent again once the same person
 * has signed in. Throws an `AbortError` if another person has.
 */
export async function reading(send: () => Promise<Response>, signal?: AbortSignal): Promise<Response> {
  if (!(await hold.over(signal))) throw givenUp();
  const { round } = hold;
  const response = await send();
  const isOfEarlierSession = response.status === 401 && round !== hold.round;
  if (isOfEarlierSession && hold.isLeft(round)) throw givenUp();
  if (!isOfEarlierSession) await inspect(response);
  if (!isOfEarlierSession && !(response.status === 401 && hold.isOn)) return response;
  return reading(send, signal);
}

function givenUp(): DOMException {
  return new DOMException("The page was closed because another person signed in.", "AbortError");
}

const SESSION = "/api/v1/session";
const SIGN_IN = "/api/v1/sessions";

async function send(request: Request): Promise<Response> {
  const { pathname } = new URL(request.url);
  authorize(request.headers, request.method);
  // Whether somebody is signed in is what everything else waits for.
  if (READS.has(request.method) && pathname !== SESSION) return reading(() => fetch(request), request.signal);
  const { round } = hold;
  const response = await fetch(request);
  // A refused sign-in ends no session, nor does a refusal that is about an earlier one.
  const saysNothing = response.status === 401 && round !== hold.round;
  if (!(request.method === "POST" && pathname === SIGN_IN) && !saysNothing) await inspect(response);
  return response;
}

export const api = createClient<paths>({ baseUrl: "/", credentials: "same-origin", fetch: send });

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The body of a successful answer; throws a [`ProblemError`] otherwise. */
export async function take<T>(request: Promise<Answer<T>>): Promise<T> {
  const answer = await request.catch((thrown: unknown) => {
    // An abort is the caller's own and no failure of the request.
    if (thrown instanceof DOMException && thrown.name === "AbortError") throw thrown;
    throw unreachable();
  });
  if (!answer.response.ok) throw problemFrom(answer.error, answer.response);
  // The API has answers without a body: their type is `undefined`.
  return answer.data as T;
}

/** A reading and the ETag by which a later request names it (`If-Match`). */
export interface Tagged<T> {
  value: T;
  etag: string;
}

/** The body of a successful answer with its ETag; throws a [`ProblemError`] otherwise. */
export async function takeTagged<T>(request: Promise<Answer<T>>): Promise<Tagged<T>> {
  const value = await take(request);
  const tag = (await request).response.headers.get("etag") ?? "";
  // The control plane's tags are strong. A proxy that compresses answers makes them weak, and a weak one never matches.
  const etag = tag.replace(/^W\//, "");
  if (etag === "")
    throw unreadable(
      "The answer has no ETag, so a change after it could not be noticed.",
      "Check the proxies between this browser and the control plane.",
    );
  return { value, etag };
}

/** All entries of a list, page by page, at most `max`. */
export async function takeAll<T>(page: (cursor?: string) => Promise<ListPage<T>>, max = 20_000): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | undefined;
  do {
    const read = await page(cursor);
    items.push(...read.items);
    cursor = read.next_cursor ?? undefined;
  } while (cursor !== undefined && items.length < max);
  return items;
}

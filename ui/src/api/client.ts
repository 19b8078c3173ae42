//! The typed client of the public API.
//!
//! Guarantees: every request that changes something carries the session's CSRF token; a missing session is reported once, to [`onSessionLost`];
//! a failure is always a [`ProblemError`].

import createClient, { type Middleware } from "openapi-fetch";

import { clock } from "../live/clock";
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
export async function inspect(response: Response): Promise<void> {
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

const session: Middleware = {
  onRequest({ request }) {
    authorize(request.headers, request.method);
    return request;
  },
  async onResponse({ request, response, schemaPath }) {
    // A refused sign-in ends no session.
    if (request.method === "POST" && schemaPath === "/api/v1/sessions") return;
    await inspect(response);
  },
};

export const api = createClient<paths>({ baseUrl: "/", credentials: "same-origin" });
api.use(session);

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

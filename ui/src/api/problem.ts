//! Refused and failed requests. Every failure that a page shows is a [`Problem`] with a code, a sentence and a next step, also the ones
//! that no server answered.

import type { Problem } from "./types";

/** Codes that the shell itself gives to failures without an answer of the API. */
export type LocalCode = "server_unreachable" | "answer_unreadable";

export class ProblemError extends Error {
  override readonly name = "ProblemError";

  constructor(
    readonly problem: Problem,
    /** True if the request may have reached the server: repeating it needs the same idempotency key. */
    readonly mayHaveRun = false,
  ) {
    super(problem.detail);
  }
}

function local(code: LocalCode, status: number, detail: string, next: string): Problem {
  return { type: "", title: "", status, code, detail, next, correlation_id: "" };
}

export function unreachable(): ProblemError {
  const next = "Check the connection to the control plane, then try again.";
  return new ProblemError(local("server_unreachable", 0, "The control plane does not answer.", next), true);
}

/** The problem in an answer's body. An answer that is none, for example of a proxy, becomes one. */
export function problemFrom(body: unknown, response: Response): ProblemError {
  if (isProblem(body)) return new ProblemError(body, response.status >= 500);
  const detail = `The answer ${response.status} is not one of the control plane.`;
  const next = "Check the proxies between this browser and the control plane.";
  const problem = local("answer_unreadable", response.status, detail, next);
  const correlation = response.headers.get("correlation-id") ?? "";
  return new ProblemError({ ...problem, correlation_id: correlation }, response.status >= 500);
}

/** A successful answer without what the page needs of it. */
export function unreadable(detail: string, next: string): ProblemError {
  return new ProblemError(local("answer_unreadable", 0, detail, next));
}

function isProblem(body: unknown): body is Problem {
  if (typeof body !== "object" || body === null) return false;
  return "code" in body && typeof body.code === "string" && "detail" in body && typeof body.detail === "string";
}

/** The problem of anything that was thrown. */
export function problemOf(thrown: unknown): Problem {
  if (thrown instanceof ProblemError) return thrown.problem;
  const detail = thrown instanceof Error ? thrown.message : "The page failed.";
  return local("answer_unreadable", 0, detail, "Reload the page.");
}

/** A refusal without a session for a form that is read after the next sign-in. */
export function afterSignIn(problem: Problem): Problem {
  if (problem.code !== "unauthenticated") return problem;
  return { ...problem, detail: "Your session had ended. Nothing was done.", next: "Send it again." };
}

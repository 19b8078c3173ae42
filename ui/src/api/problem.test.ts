import { describe, expect, it } from "vitest";

import { problemFrom } from "./problem";
import type { Problem } from "./types";

const PLACEMENT: Problem = {
  type: "/docs/errors/placement_invalid",
  title: "Unprocessable Content",
  status: 422,
  code: "placement_invalid",
  detail: "the placement is invalid",
  correlation_id: "c",
};

describe("problemFrom", () => {
  it("keeps a problem as it is", () => {
    expect(problemFrom(PLACEMENT, new Response(null, { status: 422 })).problem).toBe(PLACEMENT);
  });

  it("makes one of a proxy's page, and says that the request may have run", () => {
    const error = problemFrom("<html>", new Response(null, { status: 502 }));
    expect([error.problem.code, error.mayHaveRun]).toEqual(["answer_unreadable", true]);
  });
});

import { describe, expect, it } from "vitest";

import { errorsElsewhere, errorsOf, problemFrom } from "./problem";
import type { Problem } from "./types";

const PLACEMENT: Problem = {
  type: "/docs/errors/placement_invalid",
  title: "Unprocessable Content",
  status: 422,
  code: "placement_invalid",
  detail: "the placement is invalid",
  correlation_id: "c",
  errors: [
    {
      field: "placement.server_allocation_id",
      code: "allocation_in_use",
      detail: "gpu-1 is used by eval",
      next: "choose another",
    },
    { field: "placement.agent_allocation_ids", code: "allocation_inactive", detail: "gpu-2 is not active" },
  ],
};

describe("errors at fields", () => {
  it("finds each reason by the last part of its field", () => {
    expect(errorsOf(PLACEMENT, "server_allocation_id")).toEqual(["gpu-1 is used by eval; choose another"]);
    expect(errorsOf(PLACEMENT, "agent_allocation_ids")).toEqual(["gpu-2 is not active"]);
    expect(errorsOf(PLACEMENT, "name")).toEqual([]);
  });

  it("shows the others in the box", () => {
    expect(errorsElsewhere(PLACEMENT, ["server_allocation_id"])).toHaveLength(1);
  });

  it("uses a problem's own field", () => {
    expect(errorsOf({ ...PLACEMENT, errors: [], field: "name" }, "name")).toEqual(["the placement is invalid"]);
  });
});

describe("problemFrom", () => {
  it("keeps a problem as it is", () => {
    expect(problemFrom(PLACEMENT, new Response(null, { status: 422 })).problem).toBe(PLACEMENT);
  });

  it("makes one of a proxy's page, and says that the request may have run", () => {
    const error = problemFrom("<html>", new Response(null, { status: 502 }));
    expect([error.problem.code, error.mayHaveRun]).toEqual(["answer_unreadable", true]);
  });
});

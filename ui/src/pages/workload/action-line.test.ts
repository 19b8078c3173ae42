import { expect, it } from "vitest";

import { fieldsOf, type JsonObject } from "../../schema/fields";
import { actionLine } from "./action-line";
import type { Terms } from "./terms";

const NODES = new Map([["id-5", "gpu-5"]]);
const ADDED = fieldsOf({
  properties: { agent_allocation_ids: { type: "array", items: { type: "string", format: "uuid" } } },
});

function line(kind: Terms["kind"], parameters: JsonObject, digest?: string): string {
  return actionLine(
    { kind, id: "w-1", workload: "train", app: "rke2", project: "ml", parameters },
    ADDED,
    NODES,
    digest,
  );
}

it("each action has the line of its own verb", () => {
  expect(line("drain_member", { member: "agent-2", force: true, timeout_seconds: 90 })).toBe(
    "gpuaas workload drain-member train agent-2 --force --drain-timeout 90s",
  );
  expect(line("replace_member", { member: "agent-2", by: "id-5" })).toBe(
    "gpuaas workload replace-member train agent-2 --by gpu-5",
  );
  expect(line("repair", { scope: "whole_runtime" })).toBe("gpuaas workload repair train --scope whole-runtime");
  expect(line("repair", { member: "agent-2", scope: "member" })).toBe(
    "gpuaas workload repair train --scope member --member agent-2",
  );
  expect(line("remove_member", { member: "agent-2", give_up: true, reason: "it burnt" })).toBe(
    "gpuaas workload remove-member train agent-2 --give-up --reason 'it burnt'",
  );
  expect(line("decommission", { give_up: ["gpu-3", "gpu-4"], reason: "INC-1" })).toBe(
    "gpuaas workload decommission train --give-up gpu-3 --give-up gpu-4 --reason INC-1",
  );
  expect(line("add_member", { agent_allocation_ids: ["id-5"] }, "plan-1")).toBe(
    "gpuaas workload add-member train --agent gpu-5 --plan-digest plan-1",
  );
  expect(line("stop", {})).toBe("gpuaas workload stop train");
});

it("what no verb takes is started by its name in the API", () => {
  expect(line("upgrade", { version: "v2" })).toBe("gpuaas operation start train upgrade --parameter version=v2");
  expect(line("stop", { hard: true })).toBe("gpuaas operation start train stop --parameter hard=true");
});

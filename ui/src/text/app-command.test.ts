import { expect, it } from "vitest";

import { fieldsOf } from "../schema/fields";
import { deployLine, placementFlags } from "./app-command";

const FIELDS = fieldsOf({
  required: ["server_allocation_id"],
  properties: {
    agent_allocation_ids: { type: "array", items: { type: "string", format: "uuid" } },
    server_allocation_id: { type: "string", format: "uuid" },
  },
});

it("a placement names nodes, and ids where the node is not known", () => {
  const placement = { server_allocation_id: "a", agent_allocation_ids: ["b", "c"] };
  const flags = placementFlags(FIELDS, placement, new Map([["a", "gpu-1"], ["b", "gpu-2"]])); // prettier-ignore
  expect(flags).toEqual(["--server", "gpu-1", "--agent", "gpu-2", "--agent", "c"]);
});

it("the line of a deployment is complete and quoted", () => {
  const line = {
    app: "rke2",
    name: "it's",
    version: "v1+x",
    placement: ["--server", "gpu-1"],
    config: { tls_san: ["k8s.example"] },
    digest: "plan-1",
  };
  expect(deployLine(line)).toBe(
    `gpuaas workload deploy rke2 --name 'it'\\''s' --server gpu-1 --version v1+x --config '{"tls_san":["k8s.example"]}' --plan-digest plan-1`,
  );
  expect(deployLine({ ...line, name: "", version: undefined, placement: [], config: {}, digest: undefined })).toBe(
    "gpuaas workload deploy rke2 --name NAME",
  );
});

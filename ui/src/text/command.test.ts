import { describe, expect, it } from "vitest";

import { actionOf, commandLine } from "./command";

describe("commandLine", () => {
  it("quotes what a shell would change", () => {
    expect(commandLine("workload", "show", "train")).toBe("gpuaas workload show train");
    expect(commandLine("workload", "stop", "train", "--reason", "it's $HOME")).toBe(
      "gpuaas workload stop train --reason 'it'\\''s $HOME'",
    );
    expect(commandLine("x", "")).toBe("gpuaas x ''");
  });
});

describe("actionOf", () => {
  it("reads the action, the member and the scope", () => {
    expect(actionOf("gpuaas workload repair train --scope control-plane")).toEqual({
      kind: "repair",
      scope: "control_plane",
    });
    expect(actionOf("gpuaas workload repair train --scope member --member agent-2")).toEqual({
      kind: "repair",
      member: "agent-2",
      scope: "member",
    });
    expect(actionOf("gpuaas workload uncordon-member train agent-1")).toEqual({
      kind: "uncordon_member",
      member: "agent-1",
    });
    expect(actionOf("gpuaas workload resume train")).toEqual({ kind: "resume" });
  });

  it("offers nothing for lines that change nothing or are no such command", () => {
    expect(actionOf("gpuaas workload logs train --member agent-1")).toBeUndefined();
    expect(actionOf("rm -rf /")).toBeUndefined();
    expect(actionOf(null)).toBeUndefined();
  });

  it("ignores a member that is no name", () => {
    expect(actionOf("gpuaas workload remove-member train <b>")).toEqual({ kind: "remove_member" });
  });
});

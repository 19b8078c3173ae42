import { describe, expect, it } from "vitest";

import { actionOf, commandLine, inProject, isReleaseOf, pageOf } from "./command";

describe("commandLine", () => {
  it("quotes what a shell would change", () => {
    expect(commandLine("workload", "show", "train")).toBe("gpuaas workload show train");
    expect(commandLine("workload", "stop", "train", "--reason", "it's $HOME")).toBe(
      "gpuaas workload stop train --reason 'it'\\''s $HOME'",
    );
    expect(commandLine("x", "")).toBe("gpuaas x ''");
  });
});

describe("inProject", () => {
  it("names the project before the flags, what is quoted and a redirection", () => {
    for (const [line, expected] of [
      ["gpuaas workload list", "gpuaas workload list --project ml"],
      ["gpuaas workload drain-member train agent-1", "gpuaas workload drain-member train agent-1 --project ml"],
      ["gpuaas workload stop train --reason 'a > b'", "gpuaas workload stop train --project ml --reason 'a > b'"],
      ["gpuaas workload kubeconfig train > train.yaml", "gpuaas workload kubeconfig train --project ml > train.yaml"],
      ["gpuaas operation start train 'odd kind'", "gpuaas operation start train --project ml 'odd kind'"],
    ] as const)
      expect(inProject(line, "ml")).toBe(expected);
    expect(inProject("gpuaas event watch", "$HOME")).toBe("gpuaas event watch --project '$HOME'");
  });

  it("leaves lines that name a project, an id or a thing of the platform, and what is no such line", () => {
    for (const line of [
      "gpuaas allocation create --node gpu-1 --project research",
      "gpuaas workload deploy --help",
      "gpuaas operation cancel 0198c0de",
      "gpuaas workload revoke-access 0198c0de",
      "gpuaas node show gpu-1",
      "gpuaas",
      "https://gpu-1:6443",
    ])
      expect(inProject(line, "ml")).toBe(line);
  });

  it("leaves every line to a token that belongs to a project", () => {
    expect(inProject("gpuaas workload list", undefined)).toBe("gpuaas workload list");
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

describe("isReleaseOf", () => {
  it("is true for the release of that allocation alone", () => {
    expect(isReleaseOf("gpuaas allocation release a-1", "a-1")).toBe(true);
    for (const line of [
      "gpuaas allocation release a-2",
      "gpuaas allocation release",
      "gpuaas allocation release a-1 --dry-run",
      "gpuaas allocation show a-1",
      undefined,
      null,
    ])
      expect(isReleaseOf(line, "a-1"), String(line)).toBe(false);
  });
});

describe("pageOf", () => {
  it("finds the page of what a line shows", () => {
    expect(pageOf("gpuaas node show gpu-1")).toEqual({ path: "/nodes/gpu-1", label: "Open the node" });
    expect(pageOf("gpuaas operation watch 0198c0de")).toMatchObject({ path: "/operations/0198c0de" });
    expect(pageOf("gpuaas workload members train")).toMatchObject({ path: "/workloads/train/members" });
  });

  it("finds none for lines that change something, have flags, or name no thing", () => {
    for (const line of [
      "gpuaas node reset gpu-1",
      "gpuaas workload logs train --member agent-1",
      "gpuaas node show ../settings",
      "gpuaas node show",
      "gpuaas constructor show",
      "systemctl status gpuaas-agent",
      null,
    ])
      expect(pageOf(line), String(line)).toBeUndefined();
  });
});

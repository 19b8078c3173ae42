import { expect, it } from "vitest";

import type { AccessKind, Permission } from "../api/types";
import { accessLine, checkLines, fileName, grantLook, kindRefusal, lifetimesOf, roleOf, roleRefusal } from "./choices";

const KIND: AccessKind = {
  name: "direct",
  default: true,
  note: "",
  roles: ["cluster-admin", "cluster-view"],
  offered_roles: [
    {
      name: "cluster-admin",
      permission: "access.take",
      check: "client --with FILE all",
      check_merged: "client all",
    },
    { name: "cluster-view", permission: "access.view", check: "client --with FILE", check_merged: "client" },
  ],
  ttl_seconds: 86_400,
  ttl_seconds_max: 2_592_000,
};
const EXCEPTION: AccessKind = {
  ...KIND,
  name: "break-glass",
  default: false,
  ttl_seconds: 2_700,
  ttl_seconds_max: 3_600,
};

it("lifetimes are the usual ones that the kind admits, and its own", () => {
  expect(lifetimesOf(KIND)).toEqual([600, 1_800, 3_600, 28_800, 86_400, 604_800, 2_592_000]);
  expect(lifetimesOf(EXCEPTION)).toEqual([600, 1_800, 2_700, 3_600]);
});

it("the line delivers the same", () => {
  const terms = {
    workload: "train",
    kind: KIND,
    role: "cluster-view",
    ttlSeconds: 28_800,
    reason: "",
  };
  expect(accessLine(terms, false)).toBe("gpuaas workload kubeconfig train --role cluster-view --ttl 8h > train.yaml");
  expect(accessLine({ ...terms, ttlSeconds: 604_800 }, true)).toBe(
    "gpuaas workload kubeconfig train --role cluster-view --ttl 7d --merge",
  );
  const taken = { ...terms, kind: EXCEPTION, ttlSeconds: 2_700, reason: "it's down" };
  expect(accessLine(taken, true)).toContain(
    `--kind break-glass --role cluster-view --ttl 45m --reason 'it'\\''s down'`,
  );
  expect(fileName("train", "cluster-view")).toBe("train-cluster-view.yaml");
});

it("only roles that the API lets the caller take can be chosen; the others say what is missing", () => {
  const viewer = (permission: Permission): boolean => permission === "access.view";
  expect(roleOf(KIND, undefined, viewer)).toBe("cluster-view");
  expect(roleOf(KIND, undefined, () => true)).toBe("cluster-admin");
  // Chosen of another kind, for which it is free to take.
  expect(roleOf(KIND, "cluster-admin", viewer)).toBe("cluster-view");
  expect(roleOf(KIND, "cluster-view", () => true)).toBe("cluster-view");
  expect(roleOf(KIND, "cluster-admin", () => false)).toBeUndefined();
  expect(roleRefusal(KIND, "cluster-admin", viewer)).toBe("Your role does not have the permission access.take");
  expect([roleRefusal(KIND, "cluster-view", viewer), kindRefusal(KIND, viewer)]).toEqual([undefined, undefined]);
  expect(kindRefusal(KIND, () => false)).toBe("Your role does not have the permission access.take");
});

it("the lines that use a credential are those of its role", () => {
  expect(checkLines(KIND, "cluster-admin", "a b.yaml")).toEqual({
    file: "client --with 'a b.yaml' all",
    merged: "client all",
  });
  expect(checkLines(KIND, "cluster-view", "$&.yaml")?.file).toBe("client --with '$&.yaml'");
  expect(checkLines({}, "cluster-view", "a.yaml")).toBeUndefined();
});

it("a delivered credential is valid, an exception, or expired", () => {
  const grant = { kind: "direct" as const, expires_at: "2026-07-01T12:00:00.000Z" };
  const at = Date.parse(grant.expires_at);
  expect(grantLook(grant, [KIND, EXCEPTION], at - 1).word).toBe("Valid");
  expect(grantLook({ ...grant, kind: "break-glass" }, [KIND, EXCEPTION], at - 1)).toMatchObject({
    word: "Valid, break-glass",
    tone: "attention",
  });
  expect(grantLook(grant, [KIND], at).word).toBe("Expired");
});

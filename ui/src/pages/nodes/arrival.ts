//! How far a registered machine has come, for the dialog that watches it arrive.

import type { Node } from "../../api/types";
import { blocking, findingsOf } from "./condition";

export interface ArrivalStep {
  label: string;
  state: "done" | "current" | "pending";
  detail: string;
}

export function arrivalOf(node: Node | undefined): ArrivalStep[] {
  const enrolled = node !== undefined && node.state !== "registered";
  const connected = enrolled && node.connectivity === "connected";
  const inspected = connected && node.preflight !== null && node.preflight !== undefined;
  const done = [node !== undefined, enrolled, connected, inspected];
  const current = done.indexOf(false);
  const step = (index: number, label: string, detail: string): ArrivalStep => ({
    label,
    detail: done[index] === true || index === current ? detail : "",
    state: done[index] === true ? "done" : index === current ? "current" : "pending",
  });
  return [
    step(0, "Registered", "The control plane knows its name."),
    step(1, "Enrolled", enrolled ? "The machine has its certificate." : "Run the command on the machine as root."),
    step(2, "Connected", connected ? `Agent ${node.agent_version ?? ""}`.trim() : "The agent connects."),
    step(3, "Inspected", inspected ? summary(node) : "The agent inspects the machine."),
  ];
}

function summary(node: Node): string {
  const [all, hard] = [findingsOf(node).length, blocking(node).length];
  if (all === 0) return `All ${node.preflight?.passed ?? 0} checks passed.`;
  return `${all} findings, ${hard} of them blocking.`;
}

export function hasArrived(steps: readonly ArrivalStep[]): boolean {
  return steps.every((step) => step.state === "done");
}

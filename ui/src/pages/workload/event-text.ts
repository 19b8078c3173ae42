//! Events of a workload as lines, in the words that the log uses.

import type { Event } from "../../api/types";
import { oneLine, plain, words } from "../../text/plain";
import type { LogEntry } from "../../logs/entry";

const TEXT_MAX = 2_000;

export function eventEntry(event: Event): LogEntry {
  const text = `${subjectOf(event)}: ${textOf(event)}`.replace(/[\r\n]+/g, " ");
  return {
    number: event.sequence,
    at: Date.parse(event.at),
    source: "event",
    who: event.kind,
    text: text.length <= TEXT_MAX ? text : `${text.slice(0, TEXT_MAX)}…`,
    tone: toneOf(event),
  };
}

function field(event: Event, name: string): string {
  if (typeof event.data !== "object" || event.data === null) return "";
  const value = (event.data as Record<string, unknown>)[name];
  return typeof value === "string" || typeof value === "number" ? plain(String(value)) : "";
}

function subjectOf(event: Event): string {
  const names: Record<string, string> = {
    workload: field(event, "name"),
    member: field(event, "member"),
    step: field(event, "key"),
    operation: words(field(event, "kind")),
    task: field(event, "type"),
  };
  const name = names[event.subject_kind];
  return oneLine(`${event.subject_kind} ${name === undefined || name === "" ? event.subject_id : name}`);
}

/** The parts that each kind of object has, in this order. */
const PARTS: Record<string, readonly [field: string, before: string][]> = {
  workload: [
    ["lifecycle", ""],
    ["phase", "phase "],
    ["health", ""],
    ["recovery", "recovery "],
    ["kind", ""],
    ["role", "role "],
    ["reason", "reason: "],
    ["fault", ""],
  ],
  member: [
    ["state", ""],
    ["health", ""],
    ["fault", ""],
  ],
  operation: [
    ["state", ""],
    ["requested_by", "requested by "],
    ["reason", ""],
    ["fault", ""],
  ],
  step: [
    ["state", ""],
    ["detail", ""],
    ["attempts", "attempt "],
    ["not_before", "again at "],
    ["fault", ""],
  ],
  task: [
    ["state", ""],
    ["node", "on "],
  ],
};

function textOf(event: Event): string {
  const parts = (PARTS[event.subject_kind] ?? []).flatMap(([name, before]) => {
    const value = field(event, name);
    const isUsual = name === "attempts" && Number(value) <= 1;
    return value === "" || isUsual ? [] : [`${before}${words(value)}`];
  });
  return parts.length > 0 ? parts.join(", ") : words(event.kind.split(".").at(-1) ?? "");
}

function toneOf(event: Event): LogEntry["tone"] {
  const condition = [field(event, "state"), field(event, "health"), field(event, "lifecycle")];
  if (field(event, "fault") !== "" || condition.includes("failed")) return "failed";
  return condition.some((value) => value === "degraded" || value === "needs_attention" || value === "backoff")
    ? "attention"
    : "plain";
}

//! A line of a workload's logs as a page shows it: plain text of bounded length.

import type { WorkloadLogLine } from "../api/types";
import { oneLine, plain } from "../text/plain";

/** Longer lines are cut: a page shows a line, it does not store a file. The download has the whole line. */
export const TEXT_MAX = 16_384;

export interface LogEntry {
  /** Number in the order of arrival, never used twice by one window. */
  number: number;
  /** Milliseconds since 1970, by the clock of the line's source. */
  at: number;
  source: string;
  /** The origin of the line: a member and its unit, or a step, task or operation. */
  who: string;
  text: string;
  tone: "plain" | "failed" | "attention";
}

export function entryOf(line: WorkloadLogLine, number: number): LogEntry {
  return {
    number,
    at: Date.parse(line.at),
    source: line.source,
    who: whoOf(line),
    text: textOf(line),
    tone: toneOf(line),
  };
}

function whoOf(line: WorkloadLogLine): string {
  const parts = line.source === "journal" ? [line.member, unitName(line.unit)] : [line.subject ?? line.member];
  const who = parts.filter((part): part is string => Boolean(part)).join(" ");
  return oneLine(who) || line.source;
}

/** `rke2-agent.service` as `rke2-agent`: every unit of a journal is a service. */
function unitName(unit: string | null | undefined): string {
  return (unit ?? "").replace(/\.service$/, "");
}

function textOf(line: WorkloadLogLine): string {
  const next = line.next ? `; ${line.next}` : "";
  // A carriage return or a line feed would make one line look like two, of which the second could claim another origin.
  const text = plain(`${line.text}${next}`).replace(/[\r\n]+/g, " ");
  return text.length <= TEXT_MAX ? text : `${text.slice(0, TEXT_MAX)}… (${text.length - TEXT_MAX} characters left out)`;
}

function toneOf(line: WorkloadLogLine): LogEntry["tone"] {
  if (line.source === "problem") return "attention";
  return line.code ? "failed" : "plain";
}

export interface Segment {
  text: string;
  isHit: boolean;
}

/** The parts of a text, so that those that equal `needle` (in lower case) can be marked. */
export function segments(text: string, needle: string): Segment[] {
  if (needle === "") return [{ text, isHit: false }];
  const lower = text.toLowerCase();
  // Some letters have a lower case of another length: positions would not fit.
  if (lower.length !== text.length) return [{ text, isHit: lower.includes(needle) }];
  const parts: Segment[] = [];
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
    if (at > from) parts.push({ text: text.slice(from, at), isHit: false });
    parts.push({ text: text.slice(at, at + needle.length), isHit: true });
    from = at + needle.length;
  }
  if (from < text.length) parts.push({ text: text.slice(from), isHit: false });
  return parts;
}

//! What the overview says beside its pictures.

import type { Node, OperationDetail, Step } from "../../api/types";
import { stepLabel } from "../../components/waterfall";
import { oneLine } from "../../text/plain";

/** `8×H200`; `undefined` for a machine without known GPUs. */
export function gpusOf(node: Node | undefined): string | undefined {
  const gpus = node?.facts?.machine?.gpus ?? [];
  const first = gpus[0];
  if (first === undefined) return undefined;
  const model = modelOf(first.model ?? "GPU");
  return `${gpus.length}×${model}`;
}

/** The last word of a model that names it: `NVIDIA H200 SXM` is an `H200`. */
function modelOf(model: string): string {
  const text = oneLine(model);
  return /\b[A-Z]{1,3}\d{2,4}[A-Za-z]*\b/.exec(text)?.[0] ?? text.slice(0, 12);
}

export interface Note {
  key: string;
  label: string;
  text: string;
  isFault: boolean;
}

const NOTES_MAX = 5;

/** What steps that run, wait or failed say, failures first. */
export function notesOf(steps: readonly Step[]): Note[] {
  const notes = steps.flatMap((step): Note[] => {
    const said =
      step.fault?.evidence ??
      step.fault?.summary ??
      (step.state === "succeeded" ? null : (step.waiting?.what ?? step.detail));
    if (!said) return [];
    return [
      {
        key: step.key,
        label: stepLabel(step.key),
        text: oneLine(said),
        isFault: Boolean(step.fault) && step.state !== "succeeded",
      },
    ];
  });
  return notes.sort((a, b) => Number(b.isFault) - Number(a.isFault)).slice(0, NOTES_MAX);
}

/**
 * The milliseconds that an operation has taken, and those of them in which no step waited for a node or for the cluster: then the platform
 * itself worked. Until `now`, if the operation has not ended.
 */
export function sharesOf({ operation, steps }: OperationDetail, now: number): { whole: number; platform: number } {
  const begin = Date.parse(operation.created_at);
  const end = Math.max(begin, operation.ended_at ? Date.parse(operation.ended_at) : now);
  const spans = steps
    .filter((step) => step.started_at && step.awaits !== "platform")
    .map((step) => ({
      from: Date.parse(step.started_at ?? ""),
      to: Math.min(end, step.ended_at ? Date.parse(step.ended_at) : end),
    }))
    .sort((a, b) => a.from - b.from);
  let others = 0;
  let reached = begin;
  for (const { from, to } of spans) {
    others += Math.max(0, to - Math.max(from, reached));
    reached = Math.max(reached, to);
  }
  return { whole: end - begin, platform: end - begin - others };
}

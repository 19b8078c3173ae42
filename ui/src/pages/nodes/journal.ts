//! Lines of a journal as the API sends them: one JSON document a line.

import type { LogLine } from "../../api/types";

/** The lines of an answer. A line that is no document, for example cut at the end, is left out. */
export function parseLines(text: string): LogLine[] {
  return text.split("\n").flatMap((line) => {
    const document = parse(line);
    return isLogLine(document) ? [document] : [];
  });
}

function parse(line: string): unknown {
  try {
    return line.trim() === "" ? undefined : JSON.parse(line);
  } catch {
    return undefined;
  }
}

function isLogLine(value: unknown): value is LogLine {
  return typeof value === "object" && value !== null && "text" in value && typeof value.text === "string";
}

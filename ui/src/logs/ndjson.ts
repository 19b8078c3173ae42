//! Reads a body of one JSON document per line.

/** A longer line is no document of the API and is left out, so that one endless line cannot fill the memory. */
const LINE_MAX = 1_048_576;

/** Splits text into documents. Lines that are no JSON are left out. */
export class LineParser {
  #rest = "";
  #isTooLong = false;

  push(text: string): unknown[] {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    if (lines.length > 0 && this.#isTooLong) {
      lines.shift();
      this.#isTooLong = false;
    }
    if (this.#rest.length > LINE_MAX) {
      this.#rest = "";
      this.#isTooLong = true;
    }
    return lines.flatMap(parsed);
  }

  /** The last line, which has no line feed. */
  end(): unknown[] {
    return this.#isTooLong ? [] : parsed(this.#rest);
  }
}

function parsed(line: string): unknown[] {
  if (line.trim() === "" || line.length > LINE_MAX) return [];
  try {
    return [JSON.parse(line) as unknown];
  } catch {
    return [];
  }
}

/** The documents of a body, in batches as they arrive. A connection that breaks throws. */
export async function* jsonLines(body: ReadableStream<Uint8Array>): AsyncGenerator<unknown[]> {
  const parser = new LineParser();
  const reader = body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const values = parser.push(decoder.decode(value, { stream: true }));
      if (values.length > 0) yield values;
    }
    const last = parser.end();
    if (last.length > 0) yield last;
  } finally {
    // The body may already have failed, which is why the reading ended.
    await reader.cancel().catch(() => undefined);
  }
}

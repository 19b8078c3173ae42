//! Reads a `text/event-stream` body.
//!
//! `EventSource` is not used: it hides the status and the `Date` header, and so whether the session ended, whether events were removed, and
//! what time the server has.

export interface Message {
  id: string | undefined;
  data: string;
}

/** Splits a stream's text into messages. Comments, `retry` and `event` are ignored. */
export class MessageParser {
  #rest = "";
  #id: string | undefined;
  #data: string[] = [];

  push(text: string): Message[] {
    const messages: Message[] = [];
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      const message = this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (message !== undefined) messages.push(message);
    }
    return messages;
  }

  #line(line: string): Message | undefined {
    if (line === "") return this.#end();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    if (field === "id") this.#id = value;
    return undefined;
  }

  #end(): Message | undefined {
    if (this.#data.length === 0) return undefined;
    const message = { id: this.#id, data: this.#data.join("\n") };
    this.#data = [];
    return message;
  }
}

/** The messages of a body, in batches as they arrive. A batch without messages is a comment that keeps the connection open. */
export async function* messages(body: ReadableStream<Uint8Array>): AsyncGenerator<Message[]> {
  const parser = new MessageParser();
  const reader = body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    // The body may already have failed, which is why the reading ended.
    await reader.cancel().catch(() => undefined);
  }
}

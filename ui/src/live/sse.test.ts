import { describe, expect, it } from "vitest";

import { MessageParser } from "./sse";

describe("MessageParser", () => {
  it("reads messages over any cut of the text", () => {
    const text = 'id: 41\ndata: {"a":1}\n\n: keep-alive\n\nid:42\r\ndata: one\r\ndata: two\r\n\r\n';
    for (let cut = 0; cut <= text.length; cut += 1) {
      const parser = new MessageParser();
      const messages = [...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))];
      expect(messages).toEqual([
        { id: "41", data: '{"a":1}' },
        { id: "42", data: "one\ntwo" },
      ]);
    }
  });

  it("drops a message that the connection cut off", () => {
    expect(new MessageParser().push("id: 1\ndata: {")).toEqual([]);
  });
});

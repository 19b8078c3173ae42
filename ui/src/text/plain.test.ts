import { describe, expect, it } from "vitest";

import { counted, oneLine, plain, shortId } from "./plain";

describe("plain", () => {
  it("removes colours, titles and other escape sequences", () => {
    expect(plain("\u001b[31mred\u001b[0m")).toBe("red");
    expect(plain("\u001b]0;owned\u0007text")).toBe("text");
    expect(plain("\u001b]8;;https://evil.example\u001b\\link\u001b]8;;\u001b\\")).toBe("link");
    expect(plain("\u009b31mtext")).toBe("31mtext");
  });

  it("removes control characters and keeps tabs and line feeds", () => {
    expect(plain("a\u0000b\u0008c\td\r\ne")).toBe("abc\td\ne");
  });

  it("removes marks that reorder text and keeps right-to-left letters", () => {
    expect(plain("\u202egpj.exe")).toBe("gpj.exe");
    expect(plain("שלום")).toBe("שלום");
  });

  it("leaves markup as text and emoji whole", () => {
    expect(plain("<b>🚀</b>")).toBe("<b>🚀</b>");
  });
});

describe("oneLine", () => {
  it("joins lines", () => expect(oneLine("  a\n\n b ")).toBe("a b"));
});

describe("shortId", () => {
  it("shortens ids and digests and leaves short names", () => {
    expect(shortId("0198c0de-7a3b-7c11-9b54-0242ac127f3a")).toBe("0198c0…7f3a");
    expect(shortId("sha256:9f31aaaaaaaaaaaaaaaac02e")).toBe("sha256:9f31aa…c02e");
    expect(shortId("gpu-07")).toBe("gpu-07");
  });
});

describe("counted", () => {
  it("knows one and many", () => {
    expect(counted(1, "member")).toBe("1 member");
    expect(counted(10_000, "member")).toBe("10,000 members");
  });
});

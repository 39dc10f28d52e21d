import { describe, expect, it } from "vitest";
import { type Event, type Message, OpenTexts } from "../src/index.js";
import { byteLength, firstBytes, GrowingText } from "../src/utf8.js";

const common = { channelId: "~chat", epoch: "e", seq: 0 };
const message = (msgId: string, status: Message["status"]) => ({ msgId, channelId: "~chat", status }) as Message;
const entry = (kind: "sent" | "edited" | "recalled" | "closed", msgId: string, status: Message["status"]): Event => ({
  ...common,
  kind,
  fromSeq: 1,
  message: message(msgId, status),
});
const delta = (offset: number, text: string, msgId = "a"): Event => ({ ...common, kind: "delta", msgId, offset, text });

describe("OpenTexts", () => {
  it("keeps the first bytes and appends the rest", () => {
    const texts = new OpenTexts();
    expect(texts.get("a")).toBeUndefined();
    expect(texts.apply(entry("sent", "a", "open"))).toBe("a");
    expect(texts.get("a")).toBe("");
    const steps: [number, string, string][] = [
      [0, "héllo", "héllo"],
      [6, " 😀", "héllo 😀"],
      [11, "€", "héllo 😀€"],
      [11, "!", "héllo 😀!"], // the end is replaced
      [3, "y", "héy"],
      [2, "x", "héy"], // within é
      [0, "anew", "anew"],
      [7, "!", "anew!"], // after a U+FEFF that was removed
      [8, "?", "anew!?"],
      [0, "", ""],
    ];
    for (const [offset, text, want] of steps) {
      const before = texts.get("a");
      expect(texts.apply(delta(offset, text))).toBe(before === want && want === "héy" ? undefined : "a");
      expect(texts.get("a")).toBe(want);
    }
  });

  it("knows the messages that are open", () => {
    const texts = new OpenTexts();
    expect(texts.apply(delta(3, "late"))).toBeUndefined();
    expect(texts.apply(delta(0, "new"))).toBe("a");
    expect(texts.apply(entry("sent", "a", "open"))).toBeUndefined();
    expect(texts.get("a")).toBe("new");
    for (const [kind, status] of [
      ["closed", "sent"],
      ["closed", "cancelled"],
      ["recalled", "recalled"],
    ] as const) {
      texts.apply(delta(0, "text"));
      expect(texts.apply(entry(kind, "a", status))).toBe("a");
      expect(texts.get("a")).toBeUndefined();
      expect(texts.apply(delta(4, "more"))).toBeUndefined();
      expect(texts.apply(entry(kind, "a", status))).toBeUndefined();
    }
    expect(texts.update(message("b", "open"))).toBe(true);
    expect(texts.update(message("b", "open"))).toBe(false);
    expect(texts.update(message("b", "failed"))).toBe(true);
  });

  it("drops the texts of a lost channel only", () => {
    const texts = new OpenTexts();
    texts.apply(delta(0, "one"));
    texts.apply({ ...delta(0, "two", "b"), channelId: "~other" } as Event);
    texts.apply({ ...common, kind: "typing", userId: "ann" });
    texts.apply({ ...common, kind: "lost", reason: "DELETED" });
    expect([texts.get("a"), texts.get("b")]).toEqual([undefined, "two"]);
  });
});

describe("UTF-8", () => {
  it("has lengths and boundaries as the encoder has", () => {
    const text = "a\u007f\u0080é\u07ff\u0800€\uffff😀\u{10ffff}z";
    expect(byteLength(text)).toBe(Buffer.byteLength(text));
    const bytes = Buffer.from(text);
    for (let n = 0; n <= bytes.length; n++) {
      const cut = bytes.subarray(0, n).toString();
      expect(firstBytes(text, n)).toBe(Buffer.byteLength(cut) === n && !cut.endsWith("\ufffd") ? cut : undefined);
    }
    expect(firstBytes(text, bytes.length + 1)).toBeUndefined();
    expect(byteLength("\ud83d")).toBe(3);
  });

  it("is kept while it grows, with each U+FEFF", () => {
    const text = new GrowingText();
    let want = "";
    for (let i = 0; i < 400; i++) {
      const more = ["\ufeff", "é😀", "x".repeat(i)][i % 3] as string;
      text.append(more);
      want += more;
    }
    expect(text.toString()).toBe(want);
    expect(text.length).toBe(Buffer.byteLength(want));
    expect(text.piece(0, 3)).toEqual({ offset: 0, bytes: 3, text: "\ufeff" });
    expect(text.piece(4, 4)).toEqual({ offset: 3, bytes: 2, text: "é" });
    expect(text.piece(-1, 4)).toEqual({ offset: 0, bytes: 3, text: "\ufeff" });
    expect(text.piece(text.length, 100)).toEqual({ offset: text.length, bytes: 0, text: "" });
    expect(text.piece(text.length + 9, 100)).toEqual({ offset: text.length, bytes: 0, text: "" });
  });
});

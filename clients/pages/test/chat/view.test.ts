import { describe, expect, test } from "vitest";
import { chunkSpan } from "../../src/chat/model/timeline";
import { parseRoute, routeFragment } from "../../src/chat/route";
import { pieces } from "../../src/chat/view/links";
import { Heights, spanOf } from "../../src/chat/view/window";
import { FakeLog } from "./fake";

describe("route", () => {
  test("a channel is parsed from a fragment and formatted", () => {
    expect(parseRoute("#channel=general")).toBe("general");
    expect(parseRoute("#channel=no such!")).toBeNull();
    expect(parseRoute("")).toBeNull();
    const longest = "c".repeat(128);
    expect(parseRoute(`#channel=${longest}`)).toBe(longest);
    expect(parseRoute(`#channel=${longest}c`)).toBeNull();
    expect(routeFragment("general")).toBe("#channel=general");
    expect(routeFragment(null)).toBe("");
  });
});

describe("text", () => {
  test.each([
    ["see https://a.example/x.", ["https://a.example/x"]],
    ["(https://a.example/x)", ["https://a.example/x"]],
    ["https://a.example/x_(y)!", ["https://a.example/x_(y)"]],
    ["a https://a.example, b http://b.example:81/?q=1#z; c", ["https://a.example", "http://b.example:81/?q=1#z"]],
    ["javascript:alert(1) ftp://x.example file:///etc", []],
    ["<https://a.example>", ["https://a.example"]],
    ["https://", []],
    ["http://[", []],
  ])("links in %s", (text, links) => {
    const found = pieces(text);
    expect(found.filter((p) => p.link).map((p) => p.text)).toEqual(links);
    expect(found.map((p) => p.text).join("")).toBe(text);
  });
});

describe("window", () => {
  const chunks = Array.from({ length: 100 }, (_, index) => {
    const log = new FakeLog("c");
    for (let i = 0; i < chunkSpan; i++) log.send("u", "x");
    return { index, messages: log.messages };
  });

  test("only the chunks between two heights are drawn, and spacers replace the others", () => {
    const heights = new Heights();
    for (const { index } of chunks) heights.measured(index, 1_000, chunkSpan);
    for (const [from, to] of [
      [-500, 1_500],
      [0, 10],
      [2_500, 4_500],
      [97_000, 120_000],
      [500_000, 600_000],
    ] as const) {
      const { first, end, above, below } = spanOf(chunks, heights, from, to);
      expect(end).toBeGreaterThan(first);
      expect(above + below + 1_000 * (end - first)).toBe(100_000);
      expect(below).toBeLessThanOrEqual(Math.max(0, from));
      expect(below + 1_000 * (end - first)).toBeGreaterThanOrEqual(Math.min(to, 1_000));
      expect(end - first).toBeLessThanOrEqual(Math.ceil((to - from) / 1_000) + 2);
    }
    expect(spanOf([], heights, 0, 1_000)).toEqual({ first: 0, end: 0, above: 0, below: 0 });
  });

  test("a chunk that was not measured has the average height", () => {
    const heights = new Heights();
    expect(heights.measured(0, 20 * chunkSpan, chunkSpan)).toBe(true);
    expect(heights.measured(0, 20 * chunkSpan, chunkSpan)).toBe(false);
    const unmeasured = chunks[5];
    expect(unmeasured && heights.of(unmeasured)).toBe(20 * chunkSpan);
    heights.reset();
    expect(unmeasured && heights.of(unmeasured)).toBe(20 * chunkSpan);
  });
});

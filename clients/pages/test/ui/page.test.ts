import { describe, expect, test } from "vitest";
import { chunkSpan } from "../../src/chat/model/timeline";
import { Heights, spanOf } from "../../src/chat/view/window";
import { endpoint } from "../../src/connection/address";
import { channelFragment, readFragment, subject } from "../../src/connection/token";
import { dayName, hue, initials, pieces } from "../../src/ui/format";
import { FakeLog } from "../chat/fake";

function at(url: string, fetch: (url: string, init: RequestInit) => Promise<{ ok: boolean }>) {
  return endpoint({ location: new URL(url), fetch, random: () => "abc" });
}

describe("endpoint", () => {
  test.each([
    ["http://127.0.0.1:8080/", "http://t-abc.localhost:8080"],
    ["http://localhost/", "http://t-abc.localhost"],
    ["http://x.localhost:81/", "http://t-abc.localhost:81"],
  ])("a tab on loopback has a host name of its own: %s", async (page, want) => {
    const asked: string[] = [];
    const got = await at(page, async (url) => {
      asked.push(url);
      return { ok: true };
    });
    expect(got).toBe(want);
    expect(asked).toEqual([`${want}/icon.svg`]);
  });

  test.each(["https://127.0.0.1:8080/", "http://10.0.0.7:8080/", "https://chat.example/", "http://localhost.example/"])(
    "elsewhere it is the page's origin, and nothing is asked: %s",
    async (page) => {
      const asked: string[] = [];
      const fetch = async (url: string) => ({ ok: asked.push(url) > 0 });
      expect(await at(page, fetch)).toBe(new URL(page).origin);
      expect(asked).toEqual([]);
    },
  );

  test("where the name does not answer, or refuses, it is the page's origin", async () => {
    const page = "http://127.0.0.1:8080/";
    expect(await at(page, () => Promise.reject(new TypeError("Failed to fetch")))).toBe("http://127.0.0.1:8080");
    expect(await at(page, async () => ({ ok: false }))).toBe("http://127.0.0.1:8080");
    let limit: AbortSignal | null | undefined;
    await at(page, async (_, init) => {
      limit = init.signal;
      return { ok: true };
    });
    expect(limit?.aborted).toBe(false);
  });
});

describe("token", () => {
  const token = (claims: object) => `h.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.s`;

  test("its user is read", () => {
    expect(subject(token({ sub: "auth0|42" }))).toBe("auth0|42");
    expect(subject(token({ sub: "größe" }))).toBe("größe");
  });

  test.each(["", "x", "a.b.c", "..", token({}), token({ sub: "" }), token({ sub: 7 })])(
    "none is read from %s",
    (text) => {
      expect(subject(text)).toBeNull();
    },
  );

  test("the fragment names token and channel, and is written without the token", () => {
    expect(readFragment("#token=a.b.c&channel=general")).toEqual({ token: "a.b.c", channel: "general" });
    expect(readFragment("#channel=no such!")).toEqual({ token: null, channel: null });
    expect(readFragment("")).toEqual({ token: null, channel: null });
    const longest = "c".repeat(128);
    expect(readFragment(`#channel=${longest}`).channel).toBe(longest);
    expect(readFragment(`#channel=${longest}c`).channel).toBeNull();
    expect(channelFragment("general")).toBe("#channel=general");
    expect(channelFragment(null)).toBe("");
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

  test.each([
    ["alice", "AL"],
    ["auth0|42", "A4"],
    ["mary.ann@example.org", "MA"],
    ["x", "X"],
    ["|", "|"],
  ])("initials of %s", (user, want) => {
    expect(initials(user)).toBe(want);
    expect(hue(user)).toBe(hue(user));
  });

  test("days have names", () => {
    const now = new Date(2026, 2, 1, 12);
    expect(dayName(new Date(2026, 2, 1), now)).toBe("today");
    expect(dayName(new Date(2026, 1, 28, 23), now)).toBe("yesterday");
    expect(dayName(new Date(2025, 1, 28), now)).toContain("2025");
    expect(dayName(new Date(2026, 1, 3), now)).not.toContain("2026");
  });
});

describe("window", () => {
  const chunks = Array.from({ length: 100 }, (_, index) => {
    const log = new FakeLog("c");
    for (let i = 0; i < chunkSpan; i++) log.send("u", "x");
    return { index, messages: log.messages };
  });

  test("the chunks between two heights are drawn, and the others' heights stand for them", () => {
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

  test("what was not measured counts as the average", () => {
    const heights = new Heights();
    expect(heights.measured(0, 20 * chunkSpan, chunkSpan)).toBe(true);
    expect(heights.measured(0, 20 * chunkSpan, chunkSpan)).toBe(false);
    const unmeasured = chunks[5];
    expect(unmeasured && heights.of(unmeasured)).toBe(20 * chunkSpan);
    heights.reset();
    expect(unmeasured && heights.of(unmeasured)).toBe(20 * chunkSpan);
  });
});

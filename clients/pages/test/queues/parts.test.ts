import { describe, expect, test } from "vitest";
import { hexDump, oneLine, preview } from "../../src/queues/model/payload";
import { ticks } from "../../src/queues/model/scale";
import { span, Track } from "../../src/queues/model/track";
import { parseRoute, routeFragment } from "../../src/queues/route";
import { brief, count, duration, perSecond, size } from "../../src/ui/format";

describe("track", () => {
  function tracked(samples: readonly [at: number, n: number][]): Track {
    const track = new Track();
    for (const [at, n] of samples) track.add(at, { n });
    return track;
  }

  test("keeps ten minutes of samples", () => {
    const track = new Track();
    for (let at = 0; at <= 2 * span; at += 1_000) track.add(at, { n: at });
    const line = track.line("n");
    expect(line[0]).toEqual({ at: span, value: span });
    expect(line).toHaveLength(span / 1_000 + 1);
  });

  test("a rate covers the last five seconds", () => {
    const track = tracked([
      [0, 0],
      [1_000, 10],
      [2_000, 20],
      [3_000, 30],
      [8_000, 530],
    ]);
    expect(track.rate("n")).toBe(100);
    expect(track.rates("n").map((p) => p.value)).toEqual([null, 10, 10, 10, 100]);
    expect(track.rate("other")).toBeNull();
  });

  test("the last point of the rates is the current rate", () => {
    const track = new Track();
    let n = 0;
    for (let i = 0; i < 50; i++) {
      n += (i * 7) % 13;
      track.add(i * 1_100 + (i % 3) * 40, { n });
      expect(track.rates("n").at(-1)?.value).toEqual(track.rate("n"));
    }
  });

  test("there is no rate over a very short time", () => {
    const track = tracked([
      [0, 0],
      [20, 50],
    ]);
    expect(track.rate("n")).toBeNull();
    expect(track.rates("n").at(-1)?.value).toBeNull();
    track.add(1_000, { n: 100 });
    expect(track.rate("n")).toBe(100);
  });

  test("a counter that decreased was reset, and gives no negative rate", () => {
    const track = tracked([
      [0, 100],
      [1_000, 200],
      [2_000, 5],
    ]);
    expect(track.rate("n")).toBeNull();
    track.add(3_000, { n: 15 });
    expect(track.rate("n")).toBe(10);
    expect(track.rates("n").map((p) => p.value)).toEqual([null, 100, null, 10]);
  });

  test("no line and no rate crosses a break", () => {
    const track = tracked([[0, 0]]);
    track.break();
    expect(track.rate("n")).toBeNull();
    track.add(10_000, { n: 1_000 });
    expect(track.rate("n")).toBeNull();
    expect(track.line("n").map((p) => p.value)).toEqual([0, null, 1_000]);
    track.add(11_000, { n: 1_001 });
    expect(track.rate("n")).toBe(1);
    track.add(11_000 + span / 2, { n: 2_000 });
    expect(track.line("n").map((p) => p.value)).toEqual([0, null, 1_000, 1_001, null, 2_000]);
  });

  test("a series that a sample omits has no value", () => {
    const track = tracked([[0, 1]]);
    track.add(1_000, { other: 5 });
    track.add(2_000, { n: 3, other: 7 });
    expect(track.line("n").map((p) => p.value)).toEqual([1, null, 3]);
    expect(track.rates("n").map((p) => p.value)).toEqual([null, null, null]);
    expect(track.rate("other")).toBe(2);
  });

  test("time does not go back", () => {
    const track = tracked([
      [2_000, 2],
      [1_000, 1],
      [2_000, 3],
    ]);
    expect(track.line("n")).toEqual([{ at: 2_000, value: 2 }]);
  });
});

describe("payload", () => {
  const bytes = (...values: number[]) => Uint8Array.from(values);
  const text = (value: string) => new TextEncoder().encode(value);

  test("only valid text is shown as text", () => {
    expect(preview(text('{"a": "größe\n"}'))).toEqual({ kind: "text", text: '{"a": "größe\n"}', cut: false });
    expect(preview(bytes()).kind).toBe("empty");
    expect(preview(bytes(0xff, 0xfe)).kind).toBe("hex");
    expect(preview(bytes(0x41, 0x00)).kind).toBe("hex");
    expect(preview(bytes(0x1b, 0x5b)).kind).toBe("hex");
  });

  test("a long payload is cut between characters", () => {
    const long = text("aé".repeat(100));
    expect(preview(long, 5)).toEqual({ kind: "text", text: "aéa", cut: true });
    expect(preview(long, 300)).toEqual({ kind: "text", text: "aé".repeat(100), cut: false });
    expect(preview(new Uint8Array(100), 16)).toMatchObject({ kind: "hex", cut: true });
  });

  test("a hex dump has offset, bytes and printable characters", () => {
    expect(hexDump(bytes(...Array.from({ length: 18 }, (_, i) => i + 0x3c))).split("\n")).toEqual([
      "000000  3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49 4a 4b  <=>?@ABCDEFGHIJK",
      "000010  4c 4d                                            LM",
    ]);
  });

  test("one line of a payload", () => {
    expect(oneLine(text(" a\n\t b "))).toBe("a b");
    expect(oneLine(text("x".repeat(500)), 10)).toBe(`${"x".repeat(10)}…`);
    expect(oneLine(bytes(0, 255))).toBe("00 ff");
    expect(oneLine(new Uint8Array(100), 9)).toBe("00 00 00 …");
    expect(oneLine(bytes())).toBe("empty");
  });
});

describe("scale", () => {
  test.each([
    [0, true, [0, 1]],
    [1, true, [0, 1]],
    [2, true, [0, 1, 2]],
    [7, true, [0, 5, 10]],
    [100, true, [0, 50, 100]],
    [3_001, true, [0, 2_000, 4_000]],
    [0, false, [0, 0.005]],
    [0.5, false, [0, 0.2, 0.4, 0.6]],
    [0.3, false, [0, 0.1, 0.2, 0.3]],
  ])("round numbers up to %s", (highest, whole, want) => {
    expect(ticks(highest, 3, whole)).toEqual(want);
  });

  test("ticks reach the highest value and are few", () => {
    for (let highest = 0.001; highest < 1e9; highest *= 1.37) {
      for (const whole of [true, false]) {
        const marks = ticks(highest, 3, whole);
        expect(marks.at(-1)).toBeGreaterThanOrEqual(highest * (1 - 1e-8));
        expect(marks.length).toBeLessThanOrEqual(4);
      }
    }
  });
});

describe("numbers", () => {
  test("are formatted", () => {
    expect([perSecond(null), perSecond(0), perSecond(0.04), perSecond(3.14), perSecond(1234.5)]).toEqual([
      "–",
      "0/s",
      "<0.1/s",
      "3.1/s",
      `${(1235).toLocaleString()}/s`,
    ]);
    expect([
      duration(0),
      duration(999),
      duration(1_500),
      duration(65_000),
      duration(120_000),
      duration(7_200_000),
    ]).toEqual(["0 ms", "999 ms", "1.5 s", "65 s", "2 min", "2 h"]);
    expect(duration(86_400_000 * 3)).toBe("3 d");
    expect([size(5), size(2_048), size(3 << 20)]).toEqual(["5 B", "2 KiB", "3 MiB"]);
    expect(count(999_999)).toBe((999_999).toLocaleString());
    expect(count(2_500_000)).not.toBe((2_500_000).toLocaleString());
    expect(brief(9_999)).toBe((9_999).toLocaleString());
  });
});

describe("routes", () => {
  test.each([
    ["#topic=jobs", { topic: "jobs", view: "overview" }],
    ["#topic=jobs&view=dead", { topic: "jobs", view: "dead" }],
    ["#topic=jobs&view=nothing&token=x", { topic: "jobs", view: "overview" }],
    ["#topic=no such&view=dead", { topic: null, view: "overview" }],
    [`#topic=${"t".repeat(64)}`, { topic: "t".repeat(64), view: "overview" }],
    [`#topic=${"t".repeat(65)}`, { topic: null, view: "overview" }],
    ["", { topic: null, view: "overview" }],
  ] as const)("in the address: %s", (hash, route) => {
    expect(parseRoute(hash)).toEqual(route);
    expect(parseRoute(routeFragment(route))).toEqual(route);
    expect(routeFragment(route)).not.toContain("token");
  });
});

import { describe, expect, test } from "vitest";
import { inCalls, outcomeText, producing } from "../../src/queues/model/actions";
import { parseDuration, writeDuration } from "../../src/queues/model/duration";
import { line, merged, rates, span } from "../../src/queues/model/history";
import { hexDump, oneLine, preview } from "../../src/queues/model/payload";
import { Rate } from "../../src/queues/model/rate";
import { ticks } from "../../src/queues/model/scale";
import type { Sample } from "../../src/queues/model/types";
import { overview, parseRoute, routeFragment, routeTo } from "../../src/queues/route";
import { brief, count, duration, perSecond, size } from "../../src/ui/format";
import { parleyError } from "../chat/fake";

describe("history", () => {
  const sample = (at: number, n: number, groups: Sample["groups"] = []): Sample => ({ at, produced: n, groups });
  const samples = (...all: readonly [at: number, n: number][]) => all.map(([at, n]) => sample(at, n));
  const produced = (s: Sample) => s.produced;

  test("newer samples replace the earlier ones of their time, and keep the others for an hour", () => {
    const earlier = samples([0, 1], [5_000, 2], [10_000, 3]);
    expect(merged(earlier, [])).toBe(earlier);
    expect(merged([], earlier)).toEqual(earlier);
    expect(merged(earlier, samples([5_000, 7]))).toEqual(samples([0, 1], [5_000, 7], [10_000, 3]));
    expect(merged(earlier, samples([span + 5_000, 9]))).toEqual(samples([5_000, 2], [10_000, 3], [span + 5_000, 9]));
  });

  test("a rate covers ten seconds", () => {
    const rising = samples([0, 0], [5_000, 50], [10_000, 100], [15_000, 650]);
    expect(rates(rising, produced).map((p) => p.value)).toEqual([null, 10, 10, 60]);
  });

  test("a counter that decreased was reset, and gives no negative rate", () => {
    const reset = samples([0, 100], [5_000, 200], [10_000, 5], [15_000, 55]);
    expect(rates(reset, produced).map((p) => p.value)).toEqual([null, 20, null, 10]);
  });

  test("no line and no rate crosses a gap", () => {
    const broken = samples([0, 0], [60_000, 1_000], [65_000, 1_010]);
    expect(line(broken, produced).map((p) => p.value)).toEqual([0, null, 1_000, 1_010]);
    expect(rates(broken, produced).map((p) => p.value)).toEqual([null, null, 2]);
  });

  test("a group that a sample omits has no value", () => {
    const group = { group: "a", waiting: 3, running: 0, retrying: 0, acked: 0, dead: 0, retried: 0 };
    const some = [sample(0, 0, [group]), sample(5_000, 0)];
    const waiting = (s: Sample) => s.groups.find((g) => g.group === "a")?.waiting;
    expect(line(some, waiting).map((p) => p.value)).toEqual([3, null]);
    expect(rates(some, waiting).map((p) => p.value)).toEqual([null, null]);
  });
});

describe("rate", () => {
  function rated(...values: readonly [at: number, value: number][]): Rate {
    const rate = new Rate();
    for (const [at, value] of values) rate.add(at, value);
    return rate;
  }

  test("covers at least five seconds, or what is known", () => {
    expect(rated().value).toBeNull();
    expect(rated([0, 5]).value).toBeNull();
    expect(rated([0, 0], [3_000, 30]).value).toBe(10);
    expect(rated([0, 0], [3_000, 30], [6_000, 60], [9_000, 690]).value).toBe(110);
    expect(rated([0, 0], [60_000, 60]).value).toBe(1);
  });

  test("is not known over a very short time, after a reset, and after long", () => {
    expect(rated([0, 0], [100, 50]).value).toBeNull();
    expect(rated([0, 100], [3_000, 5]).value).toBeNull();
    expect(rated([0, 0], [3_600_000, 5]).value).toBeNull();
    expect(rated([3_000, 0], [0, 50], [3_000, 90]).value).toBeNull();
  });
});

describe("duration", () => {
  test.each([
    ["0", 0],
    ["30s", 30_000],
    ["1h 30m", 5_400_000],
    ["1.5s", 1_500],
    ["250ms", 250],
    ["7d", 604_800_000],
  ])("%s is read and written", (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
    expect(parseDuration(writeDuration(ms))).toBe(ms);
  });

  test.each(["", "5", "s", "-1s", "1 hour", "1s x"])("%j is none", (text) => {
    expect(parseDuration(text)).toBeNull();
  });

  test("is written in the largest units", () => {
    expect([writeDuration(0), writeDuration(90_000), writeDuration(86_400_000), writeDuration(1_001)]).toEqual([
      "0",
      "1m 30s",
      "1d",
      "1s 1ms",
    ]);
  });
});

describe("actions", () => {
  test("many ids are sent in several calls, whose outcomes are added up", async () => {
    const sizes: number[] = [];
    const ids = Array.from({ length: 2_500 }, (_, i) => String(i));
    const outcome = await inCalls(ids, async (some) => {
      sizes.push(some.length);
      return { done: some.length - 1, failed: 1, problems: ["it runs"] };
    });
    expect(sizes).toEqual([1_000, 1_000, 500]);
    expect(outcome).toEqual({ done: 2_497, failed: 3, problems: ["it runs"] });
  });

  test("an outcome says what was done and what was not", () => {
    const text = (done: number, failed: number) =>
      outcomeText("Cancelled", { done, failed, problems: failed > 0 ? ["it runs"] : [] });
    expect(text(1, 0)).toBe("Cancelled 1 message.");
    expect(text(2, 1)).toBe("Cancelled 2 messages. Not cancelled: 1 message (it runs).");
    expect(text(0, 2)).toBe("Not cancelled: 2 messages (it runs).");
  });

  test("a token that does not allow to produce is told which capability it lacks", async () => {
    await expect(producing("jobs", Promise.reject(parleyError("CAPABILITY_MISSING")))).rejects.toThrow("queue:jobs");
    await expect(producing("jobs", Promise.reject(new Error("other")))).rejects.toThrow("other");
    expect(await producing("jobs", Promise.resolve(5))).toBe(5);
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
    [0, false, [0, 1]],
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
    ["#topic=jobs", routeTo("jobs")],
    ["#topic=jobs&view=dead", routeTo("jobs", { view: "dead" })],
    ["#topic=jobs&view=nothing&token=x", routeTo("jobs")],
    [
      "#topic=jobs&view=jobs&group=mail&state=retrying",
      routeTo("jobs", { view: "jobs", group: "mail", state: "retrying" }),
    ],
    ["#topic=jobs&view=jobs&state=settled&group=no such", routeTo("jobs", { view: "jobs" })],
    ["#topic=jobs&view=jobs&job=0-1-2", routeTo("jobs", { view: "jobs", job: "0-1-2" })],
    ["#topic=jobs&view=dead&job=0-1-2&state=running", routeTo("jobs", { view: "dead" })],
    ["#topic=no such&view=dead", overview],
    [`#topic=${"t".repeat(64)}`, routeTo("t".repeat(64))],
    [`#topic=${"t".repeat(65)}`, overview],
    ["", overview],
  ])("in the address: %s", (hash, route) => {
    expect(parseRoute(hash)).toEqual(route);
    expect(parseRoute(routeFragment(route))).toEqual(route);
    expect(routeFragment(route)).not.toContain("token");
  });
});

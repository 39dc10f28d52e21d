import { describe, expect, it } from "vitest";
import { Waits } from "../src/backoff.js";

describe("waits", () => {
  it("are bounded, then drawn at random below the bound", () => {
    const waits = new Waits();
    expect([0, 1, 2, 3, 4, 5, 6, 7, 1000].map((n) => waits.bound(n))).toEqual([
      200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000,
    ]);
    const drawn = Array.from({ length: 2_000 }, () => waits.draw(20, 0).backoff);
    expect(Math.max(...drawn)).toBeLessThanOrEqual(10_000);
    for (const [low, high] of [
      [0, 2_500],
      [2_500, 5_000],
      [5_000, 7_500],
      [7_500, 10_000],
    ] as const) {
      const share = drawn.filter((d) => d >= low && d < high).length / drawn.length;
      expect(share).toBeGreaterThan(0.2);
      expect(share).toBeLessThan(0.3);
    }
  });

  it("are added to the server's retryAfter", () => {
    let random = 0;
    const waits = new Waits({ base: 100, max: 1_000 }, () => random);
    expect(waits.draw(0, 700)).toEqual({ retryAfter: 700, backoff: 0 });
    random = 0.5;
    expect(waits.draw(1, 700)).toEqual({ retryAfter: 700, backoff: 100 });
    expect(waits.draw(9, 0)).toEqual({ retryAfter: 0, backoff: 500 });
    expect(waits.wakeDelay()).toBe(50);
  });

  it("use the defaults for options that are not valid durations", () => {
    const waits = new Waits({ base: 0, max: -1 });
    expect([waits.bound(0), waits.bound(99)]).toEqual([200, 10_000]);
    expect(new Waits({ base: 500, max: 300 }).bound(0)).toBe(300);
  });
});

import type { Wait } from "./clock.js";

/**
 * Backoff configures the waits between attempts. A wait is a random time between 0 and a bound,
 * which starts at base and doubles with each attempt up to max. The bound is capped before the time
 * is drawn (full jitter), so that clients that failed together do not return together.
 */
export interface Backoff {
  /** The bound of the first wait, in milliseconds. The default is 200. */
  base?: number;
  /** The maximum of all bounds, in milliseconds. The default is 10,000. */
  max?: number;
}

/** Waits draws waits. */
export class Waits {
  readonly #base: number;
  readonly #max: number;
  readonly #random: () => number;

  constructor(backoff: Backoff = {}, random: () => number = Math.random) {
    this.#base = positive(backoff.base, 200);
    this.#max = positive(backoff.max, 10_000);
    this.#random = random;
  }

  /** bound returns the longest wait after the given number of failures, from 0. */
  bound(failures: number): number {
    // Beyond 2^30 every bound is capped; the power must stay finite.
    return Math.min(this.#max, this.#base * 2 ** Math.min(failures, 30));
  }

  /**
   * draw returns the wait after the given number of failures, from 0. It adds a random time to
   * retryAfter, so that clients that were told the same time do not return together.
   */
  draw(failures: number, retryAfter: number): Wait {
    return { told: Math.max(retryAfter, 0), own: this.upTo(this.bound(failures)) };
  }

  /** upTo draws a time from [0, bound]. */
  upTo(bound: number): number {
    return Math.max(bound, 0) * this.#random();
  }

  /**
   * hurried draws the rest of a wait after the platform reported that the network may work again.
   */
  hurried(): number {
    return this.upTo(this.bound(0));
  }
}

function positive(value: number | undefined, fallback: number): number {
  return value !== undefined && value > 0 ? value : fallback;
}

import type { Wait } from "./clock.js";

/**
 * Backoff says how long to wait between attempts: a random time between nothing and a bound, which starts at base and
 * doubles with each attempt up to max (full jitter: the bound is capped first, then the time is drawn, so that many
 * clients which failed together do not come back together).
 */
export interface Backoff {
  /** Bounds the first wait, in milliseconds. Default 200. */
  base?: number;
  /** Bounds every wait, in milliseconds. Default 10,000. */
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

  /** bound is the longest wait after the given number of failures, from 0. */
  bound(failures: number): number {
    // Beyond 2^30 every bound is capped; the power must stay finite.
    return Math.min(this.#max, this.#base * 2 ** Math.min(failures, 30));
  }

  /**
   * draw gives the wait after the given number of failures, from 0. What the server asked for comes on top of nothing
   * less than itself: those that it told the same time must not come back together either.
   */
  draw(failures: number, retryAfter: number): Wait {
    return { told: Math.max(retryAfter, 0), own: this.upTo(this.bound(failures)) };
  }

  /** upTo draws a time from [0, bound]. */
  upTo(bound: number): number {
    return Math.max(bound, 0) * this.#random();
  }

  /** hurried draws what is left of a wait when the platform tells that something may work again. */
  hurried(): number {
    return this.upTo(this.bound(0));
  }
}

function positive(value: number | undefined, fallback: number): number {
  return value !== undefined && value > 0 ? value : fallback;
}

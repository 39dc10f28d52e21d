import type { Wait } from "./clock.js";

/**
 * Backoff configures the waits between attempts. A wait is a random time between 0 and a bound. The
 * bound starts at base and doubles with each attempt up to max. It is capped before the time is
 * drawn (full jitter), so that clients that failed together do not return together.
 */
export interface Backoff {
  /** The bound of the first wait, in milliseconds. The default is 200. */
  base?: number;
  /** The maximum of all bounds, in milliseconds. The default is 10,000. */
  max?: number;
}

/** Waits computes the random waits between attempts. */
export class Waits {
  readonly #base: number;
  readonly #max: number;
  readonly #random: () => number;

  constructor(backoff: Backoff = {}, random: () => number = Math.random) {
    this.#base = positive(backoff.base, 200);
    this.#max = positive(backoff.max, 10_000);
    this.#random = random;
  }

  /**
   * bound returns the maximum of a random wait in milliseconds. failures is the number of earlier
   * failures in a row.
   */
  bound(failures: number): number {
    // The exponent is capped so that the power stays finite.
    return Math.min(this.#max, this.#base * 2 ** Math.min(failures, 30));
  }

  /**
   * draw returns a wait: retryAfter milliseconds, and a random time up to bound(failures). The
   * random time spreads clients that got the same retryAfter.
   */
  draw(failures: number, retryAfter: number): Wait {
    return { retryAfter: Math.max(retryAfter, 0), backoff: this.upTo(this.bound(failures)) };
  }

  /** upTo returns a random time between 0 and bound. It returns 0 if bound is negative. */
  upTo(bound: number): number {
    return Math.max(bound, 0) * this.#random();
  }

  /**
   * wakeDelay returns a random time between 0 and base. A wait is shortened to it when the platform
   * reports that the network may work again.
   */
  wakeDelay(): number {
    return this.upTo(this.bound(0));
  }
}

function positive(value: number | undefined, fallback: number): number {
  return value !== undefined && value > 0 ? value : fallback;
}

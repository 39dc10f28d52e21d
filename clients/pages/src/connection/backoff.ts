/** Backoff draws the waits between attempts. The longest wait doubles with each failure. */
export class Backoff {
  #failures = 0;

  /** The first wait is at most base, later ones at most most, in milliseconds. random returns a number from 0 to less than 1. */
  constructor(
    readonly base: number,
    readonly most: number,
    readonly random: () => number,
  ) {}

  /**
   * Counts a failure, and returns how long to wait before the next attempt: half of the longest wait at least, so that
   * pages that failed together do not return together. retryAfter is what the server asked for, and is added.
   */
  next(retryAfter = 0): number {
    const longest = Math.min(this.most, this.base * 2 ** Math.min(this.#failures++, 30));
    return retryAfter + longest * (0.5 + this.random() / 2);
  }

  /** Forgets the failures, after a success. */
  reset(): void {
    this.#failures = 0;
  }
}

/** Backoff computes random waits between attempts. The maximum doubles with each failure. */
export class Backoff {
  #failures = 0;

  /**
   * base is the maximum of the first wait and most that of all waits, in milliseconds. random
   * returns a number from 0 to less than 1.
   */
  constructor(
    readonly base: number,
    readonly most: number,
    readonly random: () => number,
  ) {}

  /**
   * Counts a failure and returns the wait before the next attempt, in milliseconds: a random time
   * between half of the maximum and the maximum, so that pages that failed together do not return
   * together. retryAfter, the time that the server asked for, is added.
   */
  next(retryAfter = 0): number {
    const longest = Math.min(this.most, this.base * 2 ** Math.min(this.#failures++, 30));
    return retryAfter + longest * (0.5 + this.random() / 2);
  }

  /** Resets the count of failures. Call it after a success. */
  reset(): void {
    this.#failures = 0;
  }
}

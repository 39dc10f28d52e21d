import type { Caller } from "./caller.js";
import type { Wait } from "./clock.js";
import type { Endpoint } from "./endpoint.js";
import { type ParleyError, tokenRefused } from "./error.js";

/** A stream that was live for at least this many milliseconds resets the backoff. */
const stableMs = 10_000;
/**
 * If the server asked to reconnect after at least this many milliseconds, the next stream waits
 * only for the time that it advised. Otherwise a server that ends each stream immediately would be
 * called without a pause.
 */
const usefulMs = 1_000;

/** StreamEnd describes how a stream ended. */
export interface StreamEnd {
  /** Why the stream ended. Undefined only if the server asked to reconnect. */
  error?: ParleyError;
  /**
   * The time in milliseconds within which the server asked to reconnect. Undefined if it did not.
   */
  advice?: number;
  /** The token with which the stream was opened. Empty if there was none. */
  token: string;
  /** The time for which the stream was live, in milliseconds. 0 if it never was live. */
  liveFor: number;
  /** The stream's node. Undefined if the client called none. */
  node?: Endpoint;
  /** True if the next stream goes to another node. */
  failsOver: boolean;
}

/** Pacer decides how long a subscription waits between two streams. */
export class Pacer {
  readonly #caller: Caller;
  /** The number of streams since the last one that resets the backoff. */
  #failures = 0;
  /**
   * 1 if a new stream was opened without a wait after a refused token, until a stream was live for
   * usefulMs.
   */
  #refusals = 0;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** next returns the wait after a stream's end, or undefined if its error is final. */
  next(end: StreamEnd): Wait | undefined {
    const { waits, tokens } = this.#caller;
    const useful = end.liveFor >= usefulMs;
    if (useful) {
      this.#refusals = 0;
    }
    if (end.liveFor >= stableMs || (useful && end.failsOver)) {
      this.#failures = 0;
    }
    let advised = 0;
    const replaced = end.token !== "" && tokenRefused(end.error) && tokens.invalidate(end.token);
    if (end.advice !== undefined) {
      advised = waits.upTo(end.advice);
      if (useful) {
        return { retryAfter: advised, backoff: 0 };
      }
    } else if (replaced && this.#refusals === 0) {
      // One attempt with a new token needs no wait.
      this.#refusals++;
      return { retryAfter: 0, backoff: 0 };
    } else if (end.error !== undefined && !this.#caller.worthRetrying(end.error)) {
      return undefined;
    }
    const retryAfter = end.error?.retryAfter ?? 0;
    if (this.#failures === 0 && end.failsOver && retryAfter === 0) {
      // The first attempt at another node waits only for the advised time.
      this.#failures++;
      return { retryAfter: advised, backoff: 0 };
    }
    const wait = waits.draw(this.#failures, retryAfter);
    this.#failures++;
    return { retryAfter: advised + wait.retryAfter, backoff: wait.backoff };
  }
}

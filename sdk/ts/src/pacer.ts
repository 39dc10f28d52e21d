import type { Caller } from "./caller.js";
import type { Wait } from "./clock.js";
import type { Endpoint } from "./endpoint.js";
import { type ParleyError, refused } from "./error.js";

/** How long a stream must have lived for the waits to begin anew, in milliseconds. */
const stableMs = 10_000;
/**
 * How long a stream must have lived for the next one to be made without a wait, on a server's advice or with a new
 * token: else a server that ends each stream at once would be called without pause.
 */
const usefulMs = 1_000;

/** StreamEnd is how a stream ended. */
export interface StreamEnd {
  /** Absent only after an advice. */
  error?: ParleyError;
  /** Set if the server asked to reconnect within a time, in milliseconds. */
  advice?: number;
  /** What the stream was authorized with. */
  token: string;
  /** How long the stream was live, in milliseconds; 0 if it never was. */
  lived: number;
  /** Where it was; absent if none was tried. */
  node?: Endpoint;
  /** True if the next stream goes to another node. */
  moved: boolean;
}

/** Pacer decides how long a subscription waits between two streams. */
export class Pacer {
  readonly #caller: Caller;
  /** Counts streams that ended before they were stable. */
  #failures = 0;
  /** Counts those that a new token did not help. */
  #refusals = 0;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** next gives the wait after a stream's end, or nothing if that was final. */
  next(end: StreamEnd): Wait | undefined {
    const { waits, tokens } = this.#caller;
    const useful = end.lived >= usefulMs;
    if (useful) {
      this.#refusals = 0;
    }
    if (end.lived >= stableMs || (useful && end.moved)) {
      this.#failures = 0;
    }
    let told = 0;
    const replaced = end.token !== "" && refused(end.error) && tokens.refuse(end.token);
    if (end.advice !== undefined) {
      told = waits.upTo(end.advice);
      if (useful) {
        return { told, own: 0 };
      }
    } else if (replaced && this.#refusals === 0) {
      // A new token is worth one attempt at once.
      this.#refusals++;
      return { told: 0, own: 0 };
    } else if (end.error !== undefined && !this.#caller.worthRetrying(end.error)) {
      return undefined;
    }
    const retryAfter = end.error?.retryAfter ?? 0;
    if (this.#failures === 0 && end.moved && retryAfter === 0) {
      // The first attempt at another node is made without a wait, but for the one advised.
      this.#failures++;
      return { told, own: 0 };
    }
    const wait = waits.draw(this.#failures, retryAfter);
    this.#failures++;
    return { told: told + wait.told, own: wait.own };
  }
}

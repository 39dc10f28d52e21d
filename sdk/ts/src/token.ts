import { until } from "./abort.js";
import { Alarm } from "./clock.js";
import { ParleyError, tokenError } from "./error.js";

/** The time that one call of a token source is given, in milliseconds. */
const tokenTimeoutMs = 10_000;

/**
 * TokenSource gives a token. It is called when the client has none and when the server refused the last one or ended
 * its streams because it had expired; never more than once at a time. It should return soon: it is given 10 s, after
 * which its signal is aborted.
 *
 * A ParleyError with the reason TOKEN_INVALID says that there will be no token: calls and subscriptions end with it.
 * Any other error counts as passing, and is tried again after a wait.
 */
export type TokenSource = (signal: AbortSignal) => string | Promise<string>;

/** Tokens holds the client's token and gets a new one when it was refused. */
export class Tokens {
  readonly #source: TokenSource | undefined;
  readonly #fixed: string;
  #current = "";
  #flight: Promise<string> | undefined;

  constructor(source: TokenSource | undefined, fixed: string) {
    this.#source = source;
    this.#fixed = fixed;
  }

  /** refreshable reports whether a refused token can be replaced. */
  get refreshable(): boolean {
    return this.#source !== undefined;
  }

  /**
   * get gives the token in use; empty for none. Concurrent callers share one call of the source, which outlives the
   * caller that began it. It rejects with a ParleyError or the signal's reason.
   */
  async get(signal: AbortSignal): Promise<string> {
    if (this.#source === undefined) {
      return checked(this.#fixed);
    }
    if (this.#current !== "") {
      return this.#current;
    }
    this.#flight ??= this.#fetch(this.#source).finally(() => {
      this.#flight = undefined;
    });
    return until(this.#flight, signal);
  }

  /**
   * refuse forgets the token that the server refused, unless another caller has replaced it already. It reports whether
   * a new one can be had.
   */
  refuse(token: string): boolean {
    if (this.#source === undefined) {
      return false;
    }
    if (this.#current === token) {
      this.#current = "";
    }
    return true;
  }

  async #fetch(source: TokenSource): Promise<string> {
    const limit = new AbortController();
    const alarm = new Alarm(() => limit.abort(new Error(`the source gave none within ${tokenTimeoutMs} ms`)));
    alarm.set(tokenTimeoutMs);
    try {
      const given = (async () => source(limit.signal))();
      const token = checked(await until(given, limit.signal));
      if (token === "") {
        throw new Error("the source gave an empty token");
      }
      this.#current = token;
      return token;
    } catch (err) {
      throw tokenError(err);
    } finally {
      alarm.close();
    }
  }
}

// What no header can carry would fail in fetch like a broken network, and be tried for ever.
function checked(token: unknown): string {
  if (typeof token !== "string" || !/^[\x20-\x7e]*$/.test(token)) {
    throw new ParleyError({ reason: "TOKEN_INVALID", message: "the token is no printable ASCII text" });
  }
  return token;
}

import { Code } from "@connectrpc/connect";
import { until } from "./abort.js";
import { Alarm } from "./clock.js";
import { ParleyError, tokenError } from "./error.js";

/** The time limit of one call of a token source, in milliseconds. */
const tokenTimeoutMs = 10_000;

/**
 * TokenSource returns a token. The client calls it when it has no token, when the server refused
 * the last one, and when the server ended a stream because the token expired. There is at most one
 * call at a time. After 10 s its signal is aborted.
 *
 * A ParleyError with the reason TOKEN_INVALID is final: calls and subscriptions end with it. So is
 * a token with a character that is not printable ASCII. After any other error the client waits and
 * calls the source again.
 */
export type TokenSource = (signal: AbortSignal) => string | Promise<string>;

/** Tokens holds the client's token and replaces it after the server refused it. */
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
   * get returns the current token, or an empty string if the client has none. Concurrent callers
   * share one call of the source. The call continues when the caller that started it aborts. get
   * rejects with a ParleyError or the signal's reason.
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
   * invalidate discards a token that the server refused, unless another caller replaced it already.
   * It reports whether the client can get a new one.
   */
  invalidate(token: string): boolean {
    if (this.#source === undefined) {
      return false;
    }
    if (this.#current === token) {
      this.#current = "";
    }
    return true;
  }

  /** discard makes the next caller get a new token from the source, if there is one. */
  discard(): void {
    this.#current = "";
  }

  async #fetch(source: TokenSource): Promise<string> {
    const limit = new AbortController();
    const alarm = new Alarm(() =>
      limit.abort(new Error(`the token source returned nothing within ${tokenTimeoutMs} ms`)),
    );
    alarm.set(tokenTimeoutMs);
    try {
      const result = (async () => source(limit.signal))();
      const token = checked(await until(result, limit.signal));
      if (token === "") {
        throw new Error("the token source returned an empty token");
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

// checked returns the token if a header can carry it, and throws TOKEN_INVALID otherwise. fetch
// would fail as for a broken network, and the client would retry forever.
function checked(token: unknown): string {
  if (typeof token !== "string" || !/^[\x20-\x7e]*$/.test(token)) {
    const message = "the token is not printable ASCII text";
    throw new ParleyError({ code: Code.Unauthenticated, reason: "TOKEN_INVALID", message });
  }
  return token;
}

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
  /** Counts the calls of the source. Only the last one's token becomes the current one. */
  #turn = 0;

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
    return until(this.#flight ?? this.#request(this.#source), signal);
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

  /**
   * renew gets a new token from the source and replaces the current one, which it returns too. It
   * changes nothing if the source fails or the signal is aborted. Without a source it returns the
   * fixed token twice.
   */
  async renew(signal: AbortSignal): Promise<{ before: string; now: string }> {
    const before = this.#source === undefined ? this.#fixed : this.#current;
    if (this.#source === undefined) {
      return { before, now: before };
    }
    // A token that was requested earlier may have been made before the reason to renew it.
    return { before, now: await until(this.#request(this.#source), signal) };
  }

  #request(source: TokenSource): Promise<string> {
    const flight = this.#fetch(source).finally(() => {
      if (this.#flight === flight) {
        this.#flight = undefined;
      }
    });
    this.#flight = flight;
    return flight;
  }

  async #fetch(source: TokenSource): Promise<string> {
    const turn = ++this.#turn;
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
      if (turn === this.#turn) {
        this.#current = token;
      }
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

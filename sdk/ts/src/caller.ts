import type { CallOptions as RpcOptions } from "@connectrpc/connect";
import { Code } from "@connectrpc/connect";
import { interrupted, link, until } from "./abort.js";
import type { Waits } from "./backoff.js";
import { Alarm, now, sleep, total } from "./clock.js";
import type { Endpoint, Endpoints, Rpc } from "./endpoint.js";
import { ParleyError, toError, tokenRefused } from "./error.js";
import type { CallOptions } from "./options.js";
import type { Heads } from "./position.js";
import type { Tokens } from "./token.js";

/**
 * Log is called for each retry and each reconnect, and when a subscription loses channels or a
 * stream skips entries. Fields never contain tokens or content.
 */
export type Log = (level: "warn", message: string, fields: Record<string, unknown>) => void;

/** Attempt makes one attempt of a call. It may be called several times. */
export type Attempt<T> = (rpc: Rpc, options: RpcOptions) => Promise<T>;

/** Outcome is the result of an attempt: a value or an error. */
export type Outcome<T> = {
  /** The node that was called last. Undefined if none was. */
  node?: Endpoint;
  /** The token of the attempt. Empty if there was none. */
  token: string;
} & ({ value: T; error?: undefined } | { value?: undefined; error: ParleyError });

/** Scope holds the signal and the time limit of one call. */
export interface Scope {
  /** Aborted by the caller's signal, by the time limit, and by the client's close. */
  readonly signal: AbortSignal;
  /** renew restarts the time limit. A call of several requests renews it when it makes progress. */
  renew(): void;
}

// cancelled is the error of an attempt whose signal was aborted. The signal has the reason.
const cancelled = new ParleyError({ code: Code.Canceled, message: "cancelled", retryable: true });

/**
 * Caller makes a client's calls: it chooses the node and the token, retries, and applies the time
 * limits.
 */
export class Caller {
  /**
   * The controllers of the running calls and subscriptions, each with a function that returns the
   * reason to abort it. Undefined after close.
   */
  #scopes: Map<AbortController, () => Error> | undefined = new Map();

  constructor(
    readonly endpoints: Endpoints,
    readonly tokens: Tokens,
    readonly waits: Waits,
    readonly heads: Heads,
    /**
     * The time limit of a call's first attempt, and of the wait for a stream's first frame, in
     * milliseconds.
     */
    readonly attemptTimeout: number,
    /** The time limit of a call that has none of its own, in milliseconds. 0 means no limit. */
    readonly callTimeout: number,
    readonly log: Log,
  ) {}

  /** close aborts all calls and subscriptions. */
  close(): void {
    const scopes = this.#scopes;
    this.#scopes = undefined;
    for (const [scope, why] of scopes ?? []) {
      scope.abort(why());
    }
  }

  /**
   * enter aborts the controller with the signal's reason when the signal is aborted, and with the
   * reason from why when the client is closed. The returned function removes both links. The client
   * keeps its own list because Node warns of a leak when a signal has more than ten listeners.
   */
  enter(controller: AbortController, signal: AbortSignal | undefined, why: () => Error): () => void {
    if (this.#scopes === undefined) {
      controller.abort(why());
      return () => {};
    }
    this.#scopes.set(controller, why);
    const unlink = link(controller, signal);
    return () => {
      this.#scopes?.delete(controller);
      unlink();
    };
  }

  /**
   * run calls work with the scope of one call and returns its result. The scope's signal is aborted
   * by the options' signal, at the time limit, and when the client is closed.
   */
  async run<T>(options: CallOptions, work: (scope: Scope) => Promise<T>): Promise<T> {
    const controller = new AbortController();
    const leave = this.enter(controller, options.signal, clientClosed);
    const timeout = options.timeout ?? this.callTimeout;
    const deadline = timeout > 0 ? new Alarm(() => controller.abort(timedOut(timeout))) : undefined;
    deadline?.set(timeout);
    try {
      controller.signal.throwIfAborted();
      return await work({ signal: controller.signal, renew: () => deadline?.set(timeout) });
    } finally {
      deadline?.close();
      leave();
    }
  }

  /**
   * limit returns the time limit in milliseconds of an attempt after the given number of failures.
   * It grows, because a limit that detects a dead node soon can be too short for a slow network.
   */
  limit(failures: number): number {
    return this.attemptTimeout * 2 ** Math.min(failures, 2);
  }

  /**
   * call makes one attempt of at most limit milliseconds. If the server refused the token and there
   * is a token source, it makes a second one with a new token at once, because a refused call
   * changed nothing. It never rejects.
   */
  async call<T>(signal: AbortSignal, limit: number, attempt: Attempt<T>): Promise<Outcome<T>> {
    for (let replaceToken = true; ; replaceToken = false) {
      const outcome = await this.#once(signal, limit, attempt);
      const replaced = outcome.token !== "" && tokenRefused(outcome.error) && this.tokens.invalidate(outcome.token);
      if (!replaced || !replaceToken) {
        return outcome;
      }
    }
  }

  async #once<T>(signal: AbortSignal, limit: number, attempt: Attempt<T>): Promise<Outcome<T>> {
    let token = "";
    try {
      token = await this.tokens.get(signal);
    } catch (err) {
      return { token, error: signal.aborted ? cancelled : toError(err) };
    }
    const controller = new AbortController();
    const unlink = link(controller, signal);
    const alarm = new Alarm(() => controller.abort(attemptTimedOut(limit)));
    alarm.set(limit);
    const node = this.endpoints.pick();
    const began = now();
    try {
      const options = { signal: controller.signal, timeoutMs: limit, headers: authorization(token) };
      const value = await until(attempt(node.rpc, options), controller.signal);
      this.endpoints.recordOutcome(signal, node, began, limit, undefined);
      return { node, token, value };
    } catch (err) {
      const error = signal.aborted ? cancelled : toError(err);
      this.endpoints.recordOutcome(signal, node, began, limit, error);
      return { node, token, error };
    } finally {
      alarm.close();
      unlink();
    }
  }

  /**
   * retry makes attempts until one succeeds or fails with a final error, or until the options'
   * signal, the time limit or the client's close ends the call.
   */
  async retry<T>(name: string, options: CallOptions, attempt: Attempt<T>): Promise<T> {
    return this.run(options, async ({ signal }) => {
      let last: ParleyError | undefined;
      for (let failures = 0; ; failures++) {
        const outcome = await this.call(signal, this.limit(failures), attempt);
        if (outcome.error === undefined) {
          return outcome.value;
        }
        if (signal.aborted) {
          throw this.ended(signal, last ?? outcome.error);
        }
        if (!this.worthRetrying(outcome.error)) {
          throw outcome.error;
        }
        last = outcome.error;
        await this.pause(signal, name, failures, outcome.node, last);
      }
    });
  }

  /**
   * once makes one attempt, and a second one only if the server refused the token. It rejects as
   * retry does.
   */
  async once<T>(options: CallOptions, attempt: Attempt<T>): Promise<T> {
    return this.run(options, async ({ signal }) => {
      const outcome = await this.call(signal, this.attemptTimeout, attempt);
      if (outcome.error === undefined) {
        return outcome.value;
      }
      throw signal.aborted ? this.ended(signal, outcome.error) : outcome.error;
    });
  }

  /**
   * ended returns the error of a call whose signal was aborted. failure is the last failure before,
   * or the error `cancelled` if there was none.
   */
  ended(signal: AbortSignal, failure: ParleyError): unknown {
    return interrupted(signal, failure === cancelled ? undefined : failure);
  }

  /**
   * pause logs the retry and waits before the next attempt. It does not wait after the first
   * failure if the next attempt goes to another node and the server asked for no wait. It rejects
   * with the call's error when the signal is aborted.
   */
  async pause(
    signal: AbortSignal,
    name: string,
    failures: number,
    node: Endpoint | undefined,
    failure: ParleyError,
  ): Promise<void> {
    let wait = this.waits.draw(failures, failure.retryAfter);
    if (failures === 0 && failure.retryAfter === 0 && node !== undefined && this.endpoints.hasOther(node)) {
      wait = { retryAfter: 0, backoff: 0 };
    }
    this.log("warn", "retrying", { call: name, addr: node?.addr ?? "", wait: total(wait), error: failure });
    try {
      await sleep(wait, signal, () => this.waits.wakeDelay());
    } catch {
      throw this.ended(signal, failure);
    }
  }

  /**
   * worthRetrying reports whether the same call may succeed later. TOKEN_EXPIRED is retryable only
   * with a token source.
   */
  worthRetrying(error: ParleyError): boolean {
    return error.retryable && (error.reason !== "TOKEN_EXPIRED" || this.tokens.refreshable);
  }
}

/** authorization returns the headers that carry a token: none if it is empty. */
export function authorization(token: string): HeadersInit {
  return token === "" ? {} : { Authorization: `Bearer ${token}` };
}

function clientClosed(): Error {
  return new DOMException("the client was closed", "AbortError");
}

function timedOut(timeout: number): Error {
  return new DOMException(`the call did not finish within ${timeout} ms`, "TimeoutError");
}

function attemptTimedOut(limit: number): ParleyError {
  return new ParleyError({
    code: Code.DeadlineExceeded,
    message: `no answer within ${limit} ms`,
    retryable: true,
    unanswered: true,
  });
}

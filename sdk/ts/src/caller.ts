import type { CallOptions } from "@connectrpc/connect";
import { Code } from "@connectrpc/connect";
import { interrupted, link, until } from "./abort.js";
import type { Waits } from "./backoff.js";
import { Alarm, now, sleep, total } from "./clock.js";
import type { Endpoint, Endpoints, Rpc } from "./endpoint.js";
import { ParleyError, refused, toError } from "./error.js";
import type { Heads } from "./position.js";
import type { Tokens } from "./token.js";

/** Log is told of retries and reconnects. Tokens and content never are. */
export type Log = (level: "warn", message: string, fields: Record<string, unknown>) => void;

/** Attempt makes one attempt of a call. It may run several times. */
export type Attempt<T> = (rpc: Rpc, options: CallOptions) => Promise<T>;

/** Outcome is what came of an attempt: a value or an error. */
export type Outcome<T> = {
  /** The node that was called last, absent if none was. */
  node?: Endpoint;
  /** What the call was authorized with. */
  token: string;
} & ({ value: T; error?: undefined } | { value?: undefined; error: ParleyError });

// What an attempt gives that its caller ended; the caller's signal tells why.
const cancelled = new ParleyError({ code: Code.Canceled, message: "cancelled", retryable: true });

/** Caller makes a client's calls: to which node, with which token, how often and how fast. */
export class Caller {
  /** What ends each call and subscription that is under way; undefined once the client is closed. */
  #scopes: Map<AbortController, () => Error> | undefined = new Map();

  constructor(
    readonly endpoints: Endpoints,
    readonly tokens: Tokens,
    readonly waits: Waits,
    readonly heads: Heads,
    /** The limit of a call's first attempt, and of the wait for a stream's first frame, in milliseconds. */
    readonly attemptTimeout: number,
    readonly log: Log,
  ) {}

  /** close ends all that is under way. */
  close(): void {
    const scopes = this.#scopes;
    this.#scopes = undefined;
    for (const [scope, why] of scopes ?? []) {
      scope.abort(why());
    }
  }

  /**
   * enter has the controller aborted with the signal, and for the reason given when the client is closed. It gives what
   * ends that. The client keeps a list of its own, since Node warns of a leak where a signal has more than ten
   * listeners.
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

  /** run gives work a signal that is aborted with the caller's, and with the client's end. */
  async run<T>(signal: AbortSignal | undefined, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const scope = new AbortController();
    const leave = this.enter(scope, signal, clientClosed);
    try {
      scope.signal.throwIfAborted();
      return await work(scope.signal);
    } finally {
      leave();
    }
  }

  /**
   * limit is how long an attempt after the given number of failures may take. It grows: what is too long for a dead
   * node may be too short for a slow network.
   */
  limit(failures: number): number {
    return this.attemptTimeout * 2 ** Math.min(failures, 2);
  }

  /**
   * call makes one attempt within limit, and one more at once if the token was refused and can be replaced: a refused
   * call did nothing. It does not reject.
   */
  async call<T>(signal: AbortSignal, limit: number, attempt: Attempt<T>): Promise<Outcome<T>> {
    for (let again = true; ; again = false) {
      const outcome = await this.#once(signal, limit, attempt);
      const replaced = outcome.token !== "" && refused(outcome.error) && this.tokens.refuse(outcome.token);
      if (!replaced || !again) {
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
    const alarm = new Alarm(() => controller.abort(tooLong(limit)));
    alarm.set(limit);
    const node = this.endpoints.pick();
    const began = now();
    try {
      const options = { signal: controller.signal, timeoutMs: limit, headers: authorization(token) };
      const value = await until(attempt(node.rpc, options), controller.signal);
      this.endpoints.judge(signal, node, began, limit, undefined);
      return { node, token, value };
    } catch (err) {
      const error = signal.aborted ? cancelled : toError(err);
      this.endpoints.judge(signal, node, began, limit, error);
      return { node, token, error };
    } finally {
      alarm.close();
      unlink();
    }
  }

  /** retry makes attempts until one succeeds, fails for good, or the signal is aborted. */
  async retry<T>(name: string, signal: AbortSignal | undefined, attempt: Attempt<T>): Promise<T> {
    return this.run(signal, async (scope) => {
      let last: ParleyError | undefined;
      for (let failures = 0; ; failures++) {
        const outcome = await this.call(scope, this.limit(failures), attempt);
        if (outcome.error === undefined) {
          return outcome.value;
        }
        if (scope.aborted) {
          throw this.ended(scope, last ?? outcome.error);
        }
        if (!this.worthRetrying(outcome.error)) {
          throw outcome.error;
        }
        last = outcome.error;
        await this.pause(scope, name, failures, outcome.node, last);
      }
    });
  }

  /** once makes one attempt, and rejects as a call does. */
  async once<T>(signal: AbortSignal | undefined, attempt: Attempt<T>): Promise<T> {
    return this.run(signal, async (scope) => {
      const outcome = await this.call(scope, this.attemptTimeout, attempt);
      if (outcome.error === undefined) {
        return outcome.value;
      }
      throw scope.aborted ? this.ended(scope, outcome.error) : outcome.error;
    });
  }

  /** ended gives what a call rejects with whose signal was aborted after the failure. */
  ended(signal: AbortSignal, failure: ParleyError): unknown {
    return interrupted(signal, failure === cancelled ? undefined : failure);
  }

  /** pause waits before the next attempt, unless that is the first to go elsewhere. It rejects as a call does. */
  async pause(
    signal: AbortSignal,
    name: string,
    failures: number,
    node: Endpoint | undefined,
    failure: ParleyError,
  ): Promise<void> {
    let wait = this.waits.draw(failures, failure.retryAfter);
    if (failures === 0 && failure.retryAfter === 0 && node !== undefined && this.endpoints.elsewhere(node)) {
      wait = { told: 0, own: 0 };
    }
    this.log("warn", "retrying", { call: name, addr: node?.addr ?? "", wait: total(wait), error: failure });
    try {
      await sleep(wait, signal, () => this.waits.hurried());
    } catch {
      throw this.ended(signal, failure);
    }
  }

  /**
   * worthRetrying reports whether the same call may succeed later. An expired token can only be replaced if there is a
   * source of tokens.
   */
  worthRetrying(error: ParleyError): boolean {
    return error.retryable && (error.reason !== "TOKEN_EXPIRED" || this.tokens.refreshable);
  }
}

/** authorization gives the headers that carry a token. */
export function authorization(token: string): HeadersInit {
  return token === "" ? {} : { Authorization: `Bearer ${token}` };
}

function clientClosed(): Error {
  return new DOMException("the client was closed", "AbortError");
}

function tooLong(limit: number): ParleyError {
  return new ParleyError({
    code: Code.DeadlineExceeded,
    message: `no answer within ${limit} ms`,
    retryable: true,
    unanswered: true,
  });
}

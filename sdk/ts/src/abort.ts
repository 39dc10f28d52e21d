import type { SendResult } from "./message.js";

/** What waits for a signal, by the signal. */
const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * onAbort calls back when the signal is aborted, which it is not yet. It gives what ends that. However many wait for a
 * signal, it has one listener: of more than ten Node warns as of a leak.
 */
export function onAbort(signal: AbortSignal, aborted: () => void): () => void {
  const callbacks = waiting.get(signal) ?? new Set();
  const call = () => aborted();
  callbacks.add(call);
  if (callbacks.size === 1) {
    waiting.set(signal, callbacks);
    signal.addEventListener("abort", callAll);
  }
  return () => {
    callbacks.delete(call);
    if (callbacks.size === 0) {
      waiting.delete(signal);
      signal.removeEventListener("abort", callAll);
    }
  };
}

function callAll(this: AbortSignal): void {
  for (const call of [...(waiting.get(this) ?? [])]) {
    call();
  }
}

/**
 * link aborts the controller when the signal is aborted, with its reason. It gives what ends that; until then the
 * signal holds on to the controller.
 */
export function link(controller: AbortController, signal: AbortSignal | undefined): () => void {
  if (signal === undefined) {
    return () => {};
  }
  if (signal.aborted) {
    controller.abort(signal.reason);
    return () => {};
  }
  return onAbort(signal, () => controller.abort(signal.reason));
}

/** until settles as the promise does, or rejects with the signal's reason, whichever comes first. */
export function until<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) {
    return promise;
  }
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      promise.catch(() => {}); // Nobody waits for it any more.
      return;
    }
    const forget = onAbort(signal, () => reject(signal.reason));
    promise.then(resolve, reject).finally(forget);
  });
}

/**
 * InterruptedError is a call that its signal ended after a failure, or in the middle of a batch. It is both: name and
 * reason are those of the signal, cause is the failure that the call was waiting out.
 */
export class InterruptedError extends Error {
  /** The signal's reason. */
  readonly reason: unknown;
  /** From sendBatch alone: what had become of each message. */
  readonly results: SendResult[] | undefined;

  constructor(reason: unknown, last: Error | undefined, results?: SendResult[]) {
    const why = reason instanceof Error ? reason.message : String(reason);
    super(last === undefined ? why : `${why}; last failure: ${last.message}`, { cause: last });
    // A program tells an abort from a timeout by the name, as with fetch.
    this.name = reason instanceof Error ? reason.name : "AbortError";
    this.reason = reason;
    this.results = results;
  }
}

/** interrupted gives what a call rejects with whose signal was aborted. */
export function interrupted(signal: AbortSignal, last: Error | undefined): unknown {
  return last === undefined ? signal.reason : new InterruptedError(signal.reason, last);
}

import type { SendResult } from "./message.js";

/** The callbacks of each signal. */
const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * onAbort calls aborted when the signal is aborted, and returns a function that ends this. The
 * signal must not be aborted yet. A signal has one listener for any number of callbacks, because
 * Node warns of a leak when it has more than ten.
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
 * link aborts the controller when the signal is aborted, with the signal's reason. It returns a
 * function that ends this; until then the signal references the controller.
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

/**
 * until settles as the promise does, or rejects with the signal's reason if the signal is aborted
 * first.
 */
export function until<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) {
    return promise;
  }
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      promise.catch(() => {}); // No one waits for the promise.
      return;
    }
    const forget = onAbort(signal, () => reject(signal.reason));
    promise.then(resolve, reject).finally(forget);
  });
}

/**
 * InterruptedError is the error of a call that its signal or its time limit ended after a failed
 * attempt, or during a batch. name is that of the signal's reason: `AbortError`, or `TimeoutError`
 * for a time limit. cause is the last failure.
 */
export class InterruptedError extends Error {
  /** The signal's reason, or the TimeoutError of the time limit. */
  readonly reason: unknown;
  /** Only from sendBatch: the result of each message when the call ended. */
  readonly results: SendResult[] | undefined;

  constructor(reason: unknown, last: Error | undefined, results?: SendResult[]) {
    const why = reason instanceof Error ? reason.message : String(reason);
    super(last === undefined ? why : `${why}; last failure: ${last.message}`, { cause: last });
    // Programs distinguish an abort from a timeout by the name, as with fetch.
    this.name = reason instanceof Error ? reason.name : "AbortError";
    this.reason = reason;
    this.results = results;
  }
}

/** interrupted returns the error of a call whose signal was aborted. */
export function interrupted(signal: AbortSignal, last: Error | undefined): unknown {
  return last === undefined ? signal.reason : new InterruptedError(signal.reason, last);
}

import type { SendResult } from "./message.js";

/** The callbacks that onAbort registered, by signal. */
const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * onAbort calls aborted when the signal is aborted. The returned function removes the callback. The
 * signal must not be aborted yet. Each signal has one listener for all its callbacks, because Node
 * warns of a leak when a signal has more than ten.
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
 * link aborts the controller with the signal's reason when the signal is aborted. An undefined
 * signal has no effect. The returned function removes the link; until it is called, the signal
 * references the controller.
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
 * first. An undefined signal is never aborted.
 */
export function until<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) {
    return promise;
  }
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      promise.catch(() => {}); // Avoids an unhandled rejection.
      return;
    }
    const forget = onAbort(signal, () => reject(signal.reason));
    promise.then(resolve, reject).finally(forget);
  });
}

/**
 * InterruptedError is the error of a call that was ended by its signal or its time limit after a
 * failed attempt, or during a batch. name is that of the signal's reason: `AbortError`, or
 * `TimeoutError` for a time limit. cause is the last failure; it is undefined if a batch ended
 * before any failure.
 */
export class InterruptedError extends Error {
  /** The signal's reason, or the TimeoutError of the time limit. */
  readonly reason: unknown;
  /** The result of each message when the call ended. Set only by sendBatch. */
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

/**
 * interrupted returns the error of a call whose signal was aborted: the signal's reason if last is
 * undefined, otherwise an InterruptedError.
 */
export function interrupted(signal: AbortSignal, last: Error | undefined): unknown {
  return last === undefined ? signal.reason : new InterruptedError(signal.reason, last);
}

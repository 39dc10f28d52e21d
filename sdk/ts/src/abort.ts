import type { SendResult } from "./message.js";

/**
 * link aborts the controller when one of the signals is aborted, with its reason. It gives what ends that; until then
 * the signals hold on to the controller.
 */
export function link(controller: AbortController, ...signals: (AbortSignal | undefined)[]): () => void {
  const ends: (() => void)[] = [];
  for (const signal of signals) {
    if (signal === undefined) {
      continue;
    }
    if (signal.aborted) {
      controller.abort(signal.reason);
      break;
    }
    const aborted = () => controller.abort(signal.reason);
    signal.addEventListener("abort", aborted);
    ends.push(() => signal.removeEventListener("abort", aborted));
  }
  return () => {
    for (const end of ends) {
      end();
    }
  };
}

/** until settles as the promise does, or rejects with the signal's reason, whichever comes first. */
export function until<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) {
    return promise;
  }
  return new Promise((resolve, reject) => {
    const aborted = () => reject(signal.reason);
    if (signal.aborted) {
      aborted();
    }
    signal.addEventListener("abort", aborted);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", aborted));
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

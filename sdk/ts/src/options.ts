/** CallOptions are the options of every call. */
export interface CallOptions {
  /**
   * Ends the call, which rejects with the signal's reason. If an attempt failed before, it rejects
   * with an InterruptedError whose cause is the last failure.
   */
  signal?: AbortSignal;
  /**
   * The time limit of this call in milliseconds, instead of the client's callTimeout. 0 means no
   * limit. At the limit the call rejects as if signal had been aborted with a TimeoutError as its
   * reason.
   */
  timeout?: number;
}

/** Clock is the time as models use it, so that tests own it. */
export interface Clock {
  /** Returns milliseconds since 1970. */
  now(): number;
  /** Calls back once after so many milliseconds. The function that it returns cancels that. */
  after(ms: number, callback: () => void): () => void;
}

/** browserClock is the browser's time. */
export const browserClock: Clock = {
  now: () => Date.now(),
  after: (ms, callback) => {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
};

/** Clock is the time source of models. Tests replace it. */
export interface Clock {
  /** Returns the time in milliseconds since 1970. */
  now(): number;
  /** Calls callback once after ms milliseconds. The returned function cancels that. */
  after(ms: number, callback: () => void): () => void;
}

/** browserClock is the Clock of the browser. */
export const browserClock: Clock = {
  now: () => Date.now(),
  after: (ms, callback) => {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
};

import { until } from "./abort.js";

/** Queue is a bounded queue. */
export class Queue<T> {
  readonly #items: T[] = [];
  readonly #bound: number;
  #changed = deferred();
  #closed = false;

  /** bound is the maximum number of items. */
  constructor(bound: number) {
    this.#bound = bound;
  }

  /**
   * put waits while the queue is full, and adds an item. It rejects with the signal's reason if the
   * signal is aborted.
   */
  async put(item: T, signal: AbortSignal): Promise<void> {
    while (this.#items.length >= this.#bound) {
      await until(this.#changed.promise, signal);
    }
    signal.throwIfAborted();
    this.#items.push(item);
    this.#change();
  }

  /**
   * take waits for an item and removes it. It returns undefined once the queue is closed and empty,
   * and rejects with the signal's reason if the signal is aborted while it waits.
   */
  async take(signal: AbortSignal | undefined): Promise<T | undefined> {
    for (;;) {
      if (this.#items.length > 0) {
        const item = this.#items.shift();
        this.#change();
        return item;
      }
      if (this.#closed) {
        return undefined;
      }
      await until(this.#changed.promise, signal);
    }
  }

  /** close ends the queue. take still returns the items in it. */
  close(): void {
    this.#closed = true;
    this.#change();
  }

  #change(): void {
    this.#changed.resolve();
    this.#changed = deferred();
  }
}

function deferred(): { promise: Promise<void>; resolve: () => void } {
  let resolve = () => {};
  const promise = new Promise<void>((r) => {
    resolve = r;
  });
  return { promise, resolve };
}

/** Turn is a lock. Waiters get it in the order of their calls. */
export class Turn {
  #last: Promise<void> = Promise.resolve();

  /**
   * take waits for the lock and returns a function that releases it. It rejects with the signal's
   * reason if the signal is aborted first.
   */
  async take(signal: AbortSignal | undefined): Promise<() => void> {
    const before = this.#last;
    const mine = deferred();
    this.#last = mine.promise;
    try {
      await until(before, signal);
      signal?.throwIfAborted();
    } catch (err) {
      // Later waiters still wait for the earlier ones.
      before.then(mine.resolve);
      throw err;
    }
    return mine.resolve;
  }
}

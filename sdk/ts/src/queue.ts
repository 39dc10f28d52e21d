import { until } from "./abort.js";

/** Queue is a bounded queue between one side that puts and another that takes. */
export class Queue<T> {
  readonly #items: T[] = [];
  readonly #bound: number;
  #changed = deferred();
  #closed = false;

  /** bound is how many items may wait. */
  constructor(bound: number) {
    this.#bound = bound;
  }

  /** put waits for room, and rejects with the signal's reason. */
  async put(item: T, signal: AbortSignal): Promise<void> {
    while (this.#items.length >= this.#bound) {
      await until(this.#changed.promise, signal);
    }
    signal.throwIfAborted();
    this.#items.push(item);
    this.#change();
  }

  /** take waits for an item; undefined is the end. It rejects with the signal's reason. */
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

  /** close ends the queue after the items that are in it. */
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

/** Turn lets one at a time do something, in the order in which they came. */
export class Turn {
  #last: Promise<void> = Promise.resolve();

  /** take waits for the turn and gives what ends it. It rejects with the signal's reason. */
  async take(signal: AbortSignal | undefined): Promise<() => void> {
    const before = this.#last;
    const mine = deferred();
    this.#last = mine.promise;
    try {
      await until(before, signal);
      signal?.throwIfAborted();
    } catch (err) {
      // Those behind wait for those before.
      before.then(mine.resolve);
      throw err;
    }
    return mine.resolve;
  }
}

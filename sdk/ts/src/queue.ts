import { link, until } from "./abort.js";

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

/** Deferred is a promise and the function that resolves it. */
export interface Deferred<T> {
  promise: Promise<T>;
  resolve: (value: T) => void;
}

export function deferred<T = void>(): Deferred<T> {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((r) => {
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

/**
 * inTurn runs work while it holds the lock. work's signal is aborted when one of the signals is;
 * while it waits for the lock, inTurn then rejects with the signal's reason.
 */
export async function inTurn<T>(
  turn: Turn,
  signals: readonly (AbortSignal | undefined)[],
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const scope = new AbortController();
  const unlink = signals.map((signal) => link(scope, signal));
  try {
    const release = await turn.take(scope.signal);
    try {
      return await work(scope.signal);
    } finally {
      release();
    }
  } finally {
    for (const end of unlink) {
      end();
    }
  }
}

/** Changes is the ordered set of the items that have changed and were not taken. */
export class Changes<T> {
  readonly #items = new Set<T>();
  #changed = deferred();
  #closed = false;

  /** add adds an item at the end. An item of the set keeps its place. */
  add(item: T): void {
    this.#items.add(item);
    this.#wake();
  }

  delete(item: T): void {
    this.#items.delete(item);
  }

  /**
   * take waits for an item and removes it. It returns undefined once the set is closed and empty,
   * and rejects with the signal's reason if the signal is aborted while it waits.
   */
  async take(signal: AbortSignal | undefined): Promise<T | undefined> {
    for (;;) {
      for (const item of this.#items) {
        this.#items.delete(item);
        return item;
      }
      if (this.#closed) {
        return undefined;
      }
      await until(this.#changed.promise, signal);
    }
  }

  /** close ends the set. take still returns the items in it. */
  close(): void {
    this.#closed = true;
    this.#wake();
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = deferred();
  }
}

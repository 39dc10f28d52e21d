import type { Caller } from "./caller.js";
import { ClosedError } from "./error.js";
import type { State, StateChange } from "./event.js";

/** LifetimeOptions are the options of everything that keeps a stream open. */
export interface LifetimeOptions {
  /**
   * Called with each new state, in order. An error that it throws is reported as an uncaught one
   * and ends nothing.
   */
  onState?: (change: StateChange) => void;
  /** Closes it when the signal is aborted; it then ends with the signal's reason. */
  signal?: AbortSignal;
}

/** Lifetime is the life of a subscription or of a presence: its states, its work and its end. */
export class Lifetime {
  state: State = "connecting";
  /** The error that ended the lifetime. Undefined until then. */
  error: unknown;

  readonly #onState: ((change: StateChange) => void) | undefined;
  readonly #controller = new AbortController();
  readonly #work = new Set<Promise<void>>();
  readonly #closed: () => ClosedError;
  readonly #leave: () => void;

  /** closed returns the error of a lifetime that the program closed. */
  constructor(caller: Caller, options: LifetimeOptions, closed: () => ClosedError) {
    this.#onState = options.onState;
    this.#closed = closed;
    this.#leave = caller.enter(this.#controller, options.signal, closed);
  }

  /** signal is aborted when the lifetime ends. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** closed reports whether the program closed the lifetime or its client. */
  get closed(): boolean {
    return this.signal.reason instanceof ClosedError;
  }

  /** close ends the lifetime. */
  close(): void {
    this.#controller.abort(this.#closed());
  }

  /** fail ends the lifetime with an error. */
  fail(error: unknown): void {
    this.#controller.abort(error);
  }

  /** track makes the end of the lifetime wait for work that does not reject. */
  track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }

  /**
   * run runs work, which returns or throws the error that ends the lifetime. The promise resolves
   * when all work of the lifetime has stopped. It does not reject.
   */
  async run(work: () => Promise<unknown>): Promise<void> {
    // Deferred, so that the program has the lifetime's object before the first call of onState.
    await Promise.resolve();
    try {
      this.error = await work();
    } catch (err) {
      this.error = err;
    }
    if (this.signal.aborted) {
      this.error = this.signal.reason;
    }
    // Ends the changes that are still being sent.
    this.#controller.abort(this.error);
    await Promise.all(this.#work);
    const error = this.error instanceof Error ? this.error : new Error(String(this.error));
    this.setState({ state: "ended", error });
    this.#leave();
  }

  setState(change: StateChange): void {
    this.state = change.state;
    try {
      this.#onState?.(change);
    } catch (err) {
      // Report an error of the program without ending the lifetime.
      queueMicrotask(() => {
        throw err;
      });
    }
  }
}

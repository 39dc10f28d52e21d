import { signal } from "@preact/signals";
import { failure } from "../../connection/failure";
import type { Board } from "./board";

/**
 * partEvery is the interval at which a part of a topic is requested while it is visible, in
 * milliseconds.
 */
export const partEvery = 2_000;

const partHidden = 30_000;

/** Polled repeats a request about a topic while its result is shown. */
export class Polled<T> {
  /** The newest result. Null until there is one. */
  readonly value = signal<T | null>(null);
  /** Why the last request failed. Empty if it succeeded. */
  readonly error = signal("");
  readonly #board: Board;
  #generation = 0; // of the current request; results of earlier requests are dropped
  #cancel = () => {};

  constructor(board: Board) {
    this.#board = board;
  }

  /**
   * Repeats this request from now on. The result of the earlier one stays until there is a new one.
   */
  start(request: (signal: AbortSignal) => Promise<T>): void {
    this.close();
    void this.#poll(request, this.#generation);
  }

  /** Stops the requests. */
  close(): void {
    this.#generation++;
    this.#cancel();
  }

  async #poll(request: (signal: AbortSignal) => Promise<T>, generation: number): Promise<void> {
    let value: T | null = null;
    let error = "";
    try {
      value = await this.#board.call(request);
    } catch (cause) {
      error = failure(cause).text;
    }
    if (generation !== this.#generation) return;
    if (!error) this.value.value = value;
    this.error.value = error;
    const wait = this.#board.around.hidden() ? partHidden : partEvery;
    this.#cancel = this.#board.around.after(wait, () => void this.#poll(request, generation));
  }
}

import { signal } from "@preact/signals";
import { failure } from "../../connection/failure";
import type { Board } from "./board";

/** Polled repeats a request about a topic in each round of the board while its result is shown. */
export class Polled<T> {
  /** The newest result. Null until there is one. */
  readonly value = signal<T | null>(null);
  /** Why the last request failed. Empty if it succeeded. */
  readonly error = signal("");
  readonly #board: Board;
  #generation = 0; // of the current request; results of earlier requests are dropped
  #running = 0; // the generation whose request has no response yet
  #request: ((signal: AbortSignal) => Promise<T>) | null = null;
  #stop = () => {};

  constructor(board: Board) {
    this.#board = board;
  }

  /**
   * Makes this request now and repeats it. The result of the earlier one stays until there is a new
   * one.
   */
  start(request: (signal: AbortSignal) => Promise<T>): void {
    this.close();
    this.#request = request;
    this.#stop = this.#board.join(() => this.#poll());
    void this.#poll();
  }

  /** Makes the request now, because a call changed its result. */
  again(): void {
    this.#generation++;
    void this.#poll();
  }

  /** Stops the requests. */
  close(): void {
    this.#generation++;
    this.#request = null;
    this.#stop();
  }

  async #poll(): Promise<void> {
    const generation = this.#generation;
    if (!this.#request || this.#running === generation) return;
    this.#running = generation;
    let value: T | null = null;
    let error = "";
    try {
      value = await this.#board.call(this.#request);
    } catch (cause) {
      error = failure(cause).text;
    }
    if (this.#running === generation) this.#running = 0;
    if (generation !== this.#generation) return;
    if (!error) this.value.value = value;
    this.error.value = error;
  }
}

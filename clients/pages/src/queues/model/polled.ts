import { signal } from "@preact/signals";
import { failure } from "../../connection/failure";
import type { Board } from "./board";

/** How often a part of a topic is asked for while it is shown, in milliseconds. */
export const partEvery = 2_000;

const partHidden = 30_000;

/** Asks a question about a topic for as long as the answer is shown. */
export class Polled<T> {
  /** The newest answer; null until there is one. */
  readonly value = signal<T | null>(null);
  /** Why the last answer is missing; empty if it is not. */
  readonly error = signal("");
  readonly #board: Board;
  #turn = 0; // of the question in use; an answer to an earlier one is dropped
  #cancel = () => {};

  constructor(board: Board) {
    this.#board = board;
  }

  /** Asks this from now on. The answer to what was asked before is shown until there is another. */
  ask(question: (signal: AbortSignal) => Promise<T>): void {
    this.close();
    void this.#round(question, this.#turn);
  }

  /** Asks no more. */
  close(): void {
    this.#turn++;
    this.#cancel();
  }

  async #round(question: (signal: AbortSignal) => Promise<T>, turn: number): Promise<void> {
    let value: T | null = null;
    let error = "";
    try {
      value = await this.#board.call(question);
    } catch (cause) {
      error = failure(cause).text;
    }
    if (turn !== this.#turn) return;
    if (!error) this.value.value = value;
    this.error.value = error;
    const wait = this.#board.around.hidden() ? partHidden : partEvery;
    this.#cancel = this.#board.around.after(wait, () => void this.#round(question, turn));
  }
}

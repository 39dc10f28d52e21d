import type { ChatClient, Environment } from "./types";

const typingEvery = 3_000;
const typingPassedOver = 1_100; // the server ignores a second event within a second

/**
 * Typist sends the typing events of the user: at most every 3 s, after a send at most every 1.1 s.
 */
export class Typist {
  readonly #client: ChatClient;
  readonly #environment: Environment;
  readonly #signal: AbortSignal;
  readonly #channel: () => string | null;
  #typedAt = 0; // when the last event was sent
  #sentSince = true; // whether the user has sent a message since then
  #cancel: (() => void) | null = null;

  /** channel returns the channel to which events can be sent now, or null. */
  constructor(client: ChatClient, environment: Environment, signal: AbortSignal, channel: () => string | null) {
    this.#client = client;
    this.#environment = environment;
    this.#signal = signal;
    this.#channel = channel;
  }

  /** Records that the user typed. */
  typed(): void {
    const channelId = this.#channel();
    if (channelId === null) return;
    const now = this.#environment.now();
    if (this.#sentSince && now - this.#typedAt < typingPassedOver) {
      this.#cancel ??= this.#environment.after(typingPassedOver, () => {
        this.#cancel = null;
        this.typed();
      });
      return;
    }
    if (!this.#sentSince && now - this.#typedAt < typingEvery) return;
    this.#typedAt = now;
    this.#sentSince = false;
    // It may be lost: the next event follows in 3 s.
    this.#client.typing(channelId, { signal: this.#signal }).catch(() => {});
  }

  /** Records that the user sent a message, or went to another channel. */
  stop(): void {
    this.#sentSince = true;
    this.#cancel?.();
    this.#cancel = null;
  }
}

import type { Channels } from "./channels";
import type { ChatClient, Environment, Message } from "./types";

const markEvery = 1_000;

/**
 * Reading marks the messages that the user sees as read, at the server and in the user's other
 * tabs. It makes at most one call a second for each channel.
 */
export class Reading {
  readonly #client: ChatClient;
  readonly #environment: Environment;
  readonly #channels: Channels;
  readonly #signal: AbortSignal;
  readonly #marking = new Map<string, Message>(); // the last message seen of each channel with a call in flight

  constructor(client: ChatClient, environment: Environment, channels: Channels, signal: AbortSignal) {
    this.#client = client;
    this.#environment = environment;
    this.#channels = channels;
    this.#signal = signal;
  }

  /** Records that the user saw a message and all messages before it. */
  seen(message: Message): void {
    const moved = this.#channels.read(message.channelId, message.seq, message.count);
    if (moved && this.#client.can("history", message.channelId)) void this.#mark(message);
  }

  async #mark(message: Message): Promise<void> {
    const id = message.channelId;
    const underway = this.#marking.has(id);
    this.#marking.set(id, message);
    if (underway) return;
    try {
      for (let done: Message | undefined; done !== this.#marking.get(id); ) {
        done = this.#marking.get(id) ?? message;
        this.#environment.read(id, done.seq, done.count);
        await this.#client.markRead(id, done.seq, { signal: this.#signal });
        await new Promise<void>((resolve) => this.#environment.after(markEvery, resolve));
      }
    } catch {
      // The next message that the user sees marks these as well.
    } finally {
      this.#marking.delete(id);
    }
  }
}

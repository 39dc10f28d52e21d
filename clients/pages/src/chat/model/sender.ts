import { type Failure, failure } from "../../connection/failure";
import type { Outbox, Pending } from "./outbox";
import { aborted, type ChatClient, type Receipt } from "./types";

/** What a sender tells. */
export interface SenderEvents {
  /** The server has stored the message. */
  stored(pending: Pending, receipt: Receipt): void;
  /** The outbox has changed for a channel. */
  changed(channelId: string): void;
  /** The server refused the token: nothing more is sent. */
  refused(why: Failure): void;
}

/**
 * Sender empties an outbox: the messages of one channel one after the other, in the order of writing, those of different
 * channels side by side. One that the server refuses for good stays, marked so, and the next one goes on.
 */
export class Sender {
  readonly #client: ChatClient;
  readonly #outbox: Outbox;
  readonly #signal: AbortSignal;
  readonly #events: SenderEvents;
  readonly #busy = new Set<string>();
  #stopped = false;

  constructor(client: ChatClient, outbox: Outbox, signal: AbortSignal, events: SenderEvents) {
    this.#client = client;
    this.#outbox = outbox;
    this.#signal = signal;
    this.#events = events;
  }

  /** Sends what waits for the channel, until nothing does. */
  async kick(channelId: string): Promise<void> {
    if (this.#busy.has(channelId)) return;
    this.#busy.add(channelId);
    try {
      for (;;) {
        const next = this.#outbox.of(channelId).find((p) => !p.refused);
        if (!next || this.#stopped || this.#signal.aborted) return;
        await this.#send(next);
      }
    } finally {
      this.#busy.delete(channelId);
    }
  }

  async #send(pending: Pending): Promise<void> {
    const { clientMsgId, channelId, content, type } = pending;
    try {
      const receipt = await this.#client.send(channelId, content, { clientMsgId, type, signal: this.#signal });
      this.#outbox.remove(clientMsgId);
      this.#events.stored(pending, receipt);
    } catch (cause) {
      if (aborted(this.#signal)) return;
      const why = failure(cause);
      if (why.cure === "token") {
        this.#stopped = true;
        this.#events.refused(why);
        return;
      }
      this.#outbox.refuse(clientMsgId, why.text);
    }
    this.#events.changed(channelId);
  }
}

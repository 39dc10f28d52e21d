import { type Failure, failure } from "../../connection/failure";
import type { Outbox, Pending } from "./outbox";
import { aborted, type ChatClient, type Message, type Receipt } from "./types";

// The reasons of the server that are about the message and not about its sender.
const contentReasons = ["TOO_LARGE", "INVALID_FIELD", "CLIENT_MSG_ID_REUSED"];

/** SenderEvents are the callbacks of a Sender. */
export interface SenderEvents {
  /** Called with a message that the server stored, as the stream will deliver it too. */
  stored(message: Message): void;
  /** Called when the outbox of a channel changed. */
  changed(channelId: string): void;
  /** Called when the server refused the token. The sender has stopped. */
  refused(why: Failure): void;
}

/**
 * Sender sends the messages of an outbox: those of one channel one at a time, in the order of
 * writing, those of different channels concurrently. A message that the server refuses permanently
 * stays, marked as refused, and the next one is sent.
 */
export class Sender {
  readonly #client: ChatClient;
  readonly #outbox: Outbox;
  readonly #me: string;
  readonly #signal: AbortSignal;
  readonly #events: SenderEvents;
  readonly #busy = new Set<string>();
  #stopped = false;

  constructor(client: ChatClient, outbox: Outbox, me: string, signal: AbortSignal, events: SenderEvents) {
    this.#client = client;
    this.#outbox = outbox;
    this.#me = me;
    this.#signal = signal;
    this.#events = events;
  }

  /**
   * Sends the pending messages of the channel until there are none. It does nothing if that is
   * already running.
   */
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
      this.#events.stored(stored(pending, receipt, this.#me));
    } catch (cause) {
      if (aborted(this.#signal)) return;
      const why = failure(cause);
      if (why.remedy === "token") {
        this.#stopped = true;
        this.#events.refused(why);
        return;
      }
      this.#outbox.refuse(clientMsgId, why.text, contentReasons.includes(why.reason));
    }
    this.#events.changed(channelId);
  }
}

function stored(pending: Pending, receipt: Receipt, me: string): Message {
  return {
    msgId: receipt.msgId,
    channelId: pending.channelId,
    seq: receipt.seq,
    count: receipt.count,
    fromId: me,
    type: pending.type,
    content: pending.content,
    metadata: {},
    clientMsgId: pending.clientMsgId,
    time: receipt.time,
    status: "sent",
    changedSeq: receipt.seq,
  };
}

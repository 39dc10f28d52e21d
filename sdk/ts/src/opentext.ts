import type { Event } from "./event.js";
import type { Message } from "./message.js";
import { byteLength, firstBytes } from "./utf8.js";

interface OpenText {
  channelId: string;
  text: string;
  /** The size of the text in UTF-8. */
  bytes: number;
}

/**
 * OpenTexts keeps the texts of the open messages of sessions, from the events of a subscription.
 * Pass each event to apply, and read the texts with get. A new stream sends each text again from
 * its start. The final content is that of the event `closed`.
 */
export class OpenTexts {
  readonly #texts = new Map<string, OpenText>();

  /**
   * apply processes an event, and returns the id of the message whose text changed, began or was
   * dropped. It returns undefined if none did.
   */
  apply(event: Event): string | undefined {
    switch (event.kind) {
      case "sent":
      case "edited":
      case "recalled":
      case "closed":
        return this.update(event.message) ? event.message.msgId : undefined;
      case "delta":
        return this.#append(event.channelId, event.msgId, event.offset, event.text) ? event.msgId : undefined;
      case "lost":
        for (const [msgId, { channelId }] of this.#texts) {
          if (channelId === event.channelId) {
            this.#texts.delete(msgId);
          }
        }
        return undefined;
      default:
        return undefined;
    }
  }

  /**
   * update processes a message in its current state, for example from a list. An open one has a
   * text from now on, which is empty at first; the text of another one is dropped. It reports
   * whether that changed anything.
   */
  update(message: Message): boolean {
    const { msgId, channelId } = message;
    if (message.status !== "open") {
      return this.#texts.delete(msgId);
    }
    if (this.#texts.has(msgId)) {
      return false;
    }
    this.#texts.set(msgId, { channelId, text: "", bytes: 0 });
    return true;
  }

  /** get returns the text so far of a message, and undefined for one not known as open. */
  get(msgId: string): string | undefined {
    return this.#texts.get(msgId)?.text;
  }

  /** append applies a delta: the first offset bytes stay, and text follows them. */
  #append(channelId: string, msgId: string, offset: number, text: string): boolean {
    const known = this.#texts.get(msgId);
    if (offset === 0) {
      this.#texts.set(msgId, { channelId, text, bytes: byteLength(text) });
      return true;
    }
    if (known === undefined) {
      return false;
    }
    // Above known.bytes is only a delta after one that began with U+FEFF, which the decoder of the
    // generated code removes.
    const kept = offset >= known.bytes ? known.text : firstBytes(known.text, offset);
    if (kept === undefined) {
      return false; // The offset is within a code point. No server sends this.
    }
    known.text = kept + text;
    known.bytes = offset + byteLength(text);
    return true;
  }
}

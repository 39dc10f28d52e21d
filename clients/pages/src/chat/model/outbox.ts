import type { Surroundings } from "./types";

/** Pending is an own message that the server has not answered for. */
export interface Pending {
  readonly clientMsgId: string;
  readonly channelId: string;
  readonly content: string;
  readonly type: string;
  /** When it was written, milliseconds since 1970, and its place among what was written in that millisecond. */
  readonly time: number;
  readonly place: number;
  /** Why the server refused it for good; empty while it may still be sent. */
  readonly refused: string;
}

/**
 * Outbox holds what one user wrote and the server has not confirmed, in the order of writing. Each message is an entry
 * of its own in the storage, which all tabs of the origin share: what a closed or crashed tab left behind the next one
 * sends. Two tabs that send the same message do no harm, as it carries the same client_msg_id.
 */
export class Outbox {
  readonly #prefix: string;
  readonly #storage: Surroundings["storage"];
  readonly #now: () => number;
  readonly #items = new Map<string, Pending>();
  #place = 0;
  #time = 0; // the latest that a message has: a clock put back must not change the order

  constructor(user: string, surroundings: Pick<Surroundings, "storage" | "now">) {
    // Encoded, as a user's id may hold a slash: nobody's prefix is the beginning of another's.
    this.#prefix = `parley.outbox/${encodeURIComponent(user)}/`;
    this.#storage = surroundings.storage;
    this.#now = () => surroundings.now();
    this.#load();
  }

  /** What waits for a channel, oldest first. */
  of(channelId: string): readonly Pending[] {
    return [...this.#items.values()].filter((p) => p.channelId === channelId).sort(byWriting);
  }

  /** The channels for which something waits. */
  channels(): readonly string[] {
    return [...new Set([...this.#items.values()].map((p) => p.channelId))];
  }

  has(clientMsgId: string): boolean {
    return this.#items.has(clientMsgId);
  }

  /** Keeps a new message under an id that nobody else has. */
  add(channelId: string, content: string, type: string): Pending {
    this.#time = Math.max(this.#time, this.#now());
    const pending = {
      clientMsgId: randomId(),
      channelId,
      content,
      type,
      time: this.#time,
      place: this.#place++,
      refused: "",
    };
    this.#keep(pending);
    return pending;
  }

  /** Marks a message as refused for good, with the reason, or with an empty one as to be sent again. */
  refuse(clientMsgId: string, reason: string): void {
    const pending = this.#items.get(clientMsgId);
    if (pending) this.#keep({ ...pending, refused: reason });
  }

  /** Forgets a message; it says whether it was there. */
  remove(clientMsgId: string): boolean {
    if (!this.#items.delete(clientMsgId)) return false;
    try {
      this.#storage?.removeItem(this.#prefix + clientMsgId);
    } catch {
      // Sent once more by the next tab, under the same id.
    }
    return true;
  }

  /**
   * Takes over what another tab did under a key of the storage: null where the key is none of this outbox's. Written
   * says that a message came or has changed, and not that it has gone.
   */
  sync(key: string): { channelId: string; written: boolean } | null {
    if (!key.startsWith(this.#prefix)) return null;
    const pending = this.#read(key);
    if (pending) {
      this.#take(pending);
      return { channelId: pending.channelId, written: true };
    }
    const clientMsgId = key.slice(this.#prefix.length);
    const gone = this.#items.get(clientMsgId);
    if (!gone) return null;
    this.#items.delete(clientMsgId);
    return { channelId: gone.channelId, written: false };
  }

  #keep(pending: Pending): void {
    this.#items.set(pending.clientMsgId, pending);
    try {
      this.#storage?.setItem(this.#prefix + pending.clientMsgId, JSON.stringify(pending));
    } catch {
      // A full or forbidden storage costs only what a crash would lose.
    }
  }

  #load(): void {
    const storage = this.#storage;
    if (!storage) return;
    for (let i = 0; i < storage.length; i++) {
      const key = storage.key(i);
      if (!key?.startsWith(this.#prefix)) continue;
      const pending = this.#read(key);
      if (pending) this.#take(pending);
    }
  }

  #read(key: string): Pending | null {
    return parse(this.#storage?.getItem(key) ?? null);
  }

  #take(pending: Pending): void {
    this.#items.set(pending.clientMsgId, pending);
    this.#place = Math.max(this.#place, pending.place + 1);
    this.#time = Math.max(this.#time, pending.time);
  }
}

function byWriting(a: Pending, b: Pending): number {
  return a.time - b.time || a.place - b.place;
}

function parse(text: string | null): Pending | null {
  try {
    const value = JSON.parse(text ?? "") as Partial<Pending>;
    const strings = [value.clientMsgId, value.channelId, value.content, value.type, value.refused];
    const numbers = [value.time, value.place];
    const whole = strings.every((s) => typeof s === "string") && numbers.every((n) => typeof n === "number");
    return whole ? (value as Pending) : null;
  } catch {
    return null;
  }
}

function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

import type { Environment } from "./types";

/** Pending is an own message that the server has not confirmed. */
export interface Pending {
  readonly clientMsgId: string;
  readonly channelId: string;
  readonly content: string;
  readonly type: string;
  /**
   * When it was written, in milliseconds since 1970, and its rank among messages of the same
   * millisecond.
   */
  readonly time: number;
  readonly place: number;
  /** Why the server permanently refused the message. Empty while it may still be sent. */
  readonly refused: string;
  /** True if the server would refuse this text again, with any token. */
  readonly final: boolean;
}

/**
 * Outbox holds the messages that one user wrote and the server has not confirmed, in the order of
 * writing. Each message has its own entry in the storage, which all tabs of the origin share: the
 * next tab sends the messages of a tab that was closed or crashed. If two tabs send the same
 * message, it is stored once, because it has the same client_msg_id.
 */
export class Outbox {
  readonly #prefix: string;
  readonly #storage: Environment["storage"];
  readonly #now: () => number;
  readonly #items = new Map<string, Pending>();
  #place = 0;
  #time = 0; // the latest time of a message: a clock that is set back must not change the order

  constructor(user: string, environment: Pick<Environment, "storage" | "now">) {
    // Encoded, because a user's id can contain a slash: otherwise one user's prefix could be the
    // beginning of another's.
    this.#prefix = `parley.outbox/${encodeURIComponent(user)}/`;
    this.#storage = environment.storage;
    this.#now = () => environment.now();
    this.#load();
  }

  /** Returns the pending messages of a channel, oldest first. */
  of(channelId: string): readonly Pending[] {
    return [...this.#items.values()].filter((p) => p.channelId === channelId).sort(byWriting);
  }

  /** Returns the channels with pending messages. */
  channels(): readonly string[] {
    return [...new Set([...this.#items.values()].map((p) => p.channelId))];
  }

  has(clientMsgId: string): boolean {
    return this.#items.has(clientMsgId);
  }

  /** Stores a new message under a new random id. */
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
      final: false,
    };
    this.#keep(pending);
    return pending;
  }

  /**
   * Marks a message as permanently refused for a reason. An empty reason marks it as to be sent
   * again. final is true if the text itself is refused.
   */
  refuse(clientMsgId: string, reason: string, final = false): void {
    const pending = this.#items.get(clientMsgId);
    if (pending) this.#keep({ ...pending, refused: reason, final });
  }

  /** Removes a message. It reports whether the message was there. */
  remove(clientMsgId: string): boolean {
    if (!this.#items.delete(clientMsgId)) return false;
    try {
      this.#storage?.removeItem(this.#prefix + clientMsgId);
    } catch {
      // The entry stays in the storage: the next tab sends the message again, with the same id.
    }
    return true;
  }

  /**
   * Applies another tab's change of a storage key. It returns null if the key is not one of this
   * outbox, or if nothing changed. written is true for a new or changed message and false for a
   * removed one.
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
      // If the storage is full or forbidden, a crash loses the message.
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
    return whole ? ({ ...value, final: value.final === true } as Pending) : null;
  } catch {
    return null;
  }
}

function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

import type { Message } from "./types";

/**
 * chunkSpan is the number of positions in the log that one chunk covers. A chunk has fewer messages
 * if some of its positions are edits and recalls.
 */
export const chunkSpan = 32;

/**
 * Chunk is a part of the log: the messages at chunkSpan positions, ordered by seq. It is immutable.
 */
export interface Chunk {
  readonly index: number;
  readonly messages: readonly Message[];
}

/** TimelineView is a snapshot of a timeline. */
export interface TimelineView {
  /** The chunks that are not empty, ordered by index. */
  readonly chunks: readonly Chunk[];
  /** True if the channel's first message is loaded. */
  readonly atStart: boolean;
  /** True if the newest message is loaded. */
  readonly atEnd: boolean;
}

/**
 * Timeline is a contiguous part of a channel's log, from pages and live messages. Of two copies of
 * a message it keeps the one with the higher changedSeq, so pages and live messages may arrive in
 * any order.
 *
 * Call begin before a page is requested, and end when it was loaded or failed. Live messages that
 * arrive in between are also merged into the page, which can be older.
 */
export class Timeline {
  #chunks = new Map<number, Chunk>();
  #from = Number.POSITIVE_INFINITY; // no message is missing from this seq to #to, or to the end of the log with #atEnd
  #to = 0;
  #size = 0;
  #atStart = false;
  #atEnd = false;
  #loads = 0;
  #late = new Map<string, Message>();
  #view: TimelineView | null = null;

  /** The number of loaded messages. */
  get size(): number {
    return this.#size;
  }

  /** The lowest and the highest loaded seq. 0 if nothing is loaded. */
  get bounds(): { first: number; last: number } {
    const chunks = this.view().chunks;
    return { first: chunks[0]?.messages[0]?.seq ?? 0, last: chunks.at(-1)?.messages.at(-1)?.seq ?? 0 };
  }

  view(): TimelineView {
    this.#view ??= {
      chunks: [...this.#chunks.values()].sort((a, b) => a.index - b.index),
      atStart: this.#atStart,
      atEnd: this.#atEnd,
    };
    return this.#view;
  }

  /**
   * Applies a live message, or the result of a send. It reports whether the loaded messages
   * changed.
   */
  apply(message: Message): boolean {
    if (this.#loads > 0) {
      const kept = this.#late.get(message.msgId);
      if (!kept || kept.changedSeq < message.changedSeq) this.#late.set(message.msgId, message);
    }
    if (message.seq < this.#from || (message.seq > this.#to && !this.#atEnd)) return false;
    return this.#put(message);
  }

  /**
   * Records that messages after the highest loaded seq may be missing: the newest message is no
   * longer loaded.
   */
  interrupt(): void {
    this.#atEnd = false;
    this.#view = null;
  }

  begin(): void {
    this.#loads++;
  }

  end(): void {
    this.#loads--;
    if (this.#loads === 0) this.#late.clear();
  }

  /** Replaces all messages by the newest page. all means that the page reaches the log's start. */
  newest(page: readonly Message[], all: boolean): void {
    this.#chunks.clear();
    this.#size = 0;
    this.#to = 0;
    this.#from = all ? 0 : lowest(page);
    this.#atStart = all;
    this.#atEnd = true;
    this.#merge(page);
  }

  /**
   * Adds the page before the lowest loaded seq. all means that the page reaches the log's start.
   */
  older(page: readonly Message[], all: boolean): void {
    this.#from = all ? 0 : Math.min(this.#from, lowest(page));
    this.#atStart = all;
    this.#merge(page);
  }

  /** Adds the page after the highest loaded seq. all means that the page reaches the log's end. */
  newer(page: readonly Message[], all: boolean): void {
    this.#atEnd = all;
    for (const message of page) this.#to = Math.max(this.#to, message.seq);
    this.#merge(page);
  }

  /**
   * Unloads the newest chunks while more than limit messages are loaded. One chunk always stays.
   */
  dropNewest(limit: number): void {
    const chunks = this.view().chunks;
    for (let i = chunks.length - 1; i > 0 && this.#size > limit; i--) {
      this.#drop(chunks[i]);
      this.#atEnd = false;
      this.#to = chunks[i - 1]?.messages.at(-1)?.seq ?? 0;
    }
  }

  /**
   * Unloads the oldest chunks while more than limit messages are loaded. One chunk always stays.
   */
  dropOldest(limit: number): void {
    const chunks = this.view().chunks;
    for (let i = 0; i < chunks.length - 1 && this.#size > limit; i++) {
      this.#drop(chunks[i]);
      this.#atStart = false;
      this.#from = chunks[i + 1]?.messages[0]?.seq ?? 0;
    }
  }

  /** Returns the newest loaded message for which test returns true. */
  findLast(test: (message: Message) => boolean): Message | undefined {
    const chunks = this.view().chunks;
    for (let i = chunks.length - 1; i >= 0; i--) {
      const found = chunks[i]?.messages.findLast(test);
      if (found) return found;
    }
    return undefined;
  }

  #merge(page: readonly Message[]): void {
    this.#view = null;
    for (const message of page) this.#put(message);
    for (const message of this.#late.values()) {
      if (message.seq >= this.#from && (this.#atEnd || message.seq <= this.#to)) this.#put(message);
    }
  }

  #put(message: Message): boolean {
    const index = Math.floor(message.seq / chunkSpan);
    const old = this.#chunks.get(index)?.messages ?? [];
    let at = old.length;
    while (at > 0 && (old[at - 1]?.seq ?? 0) > message.seq) at--;
    const same = old[at - 1];
    const messages = [...old];
    if (same?.seq === message.seq) {
      if (same.changedSeq >= message.changedSeq) return false;
      messages[at - 1] = message;
    } else {
      messages.splice(at, 0, message);
      this.#size++;
    }
    this.#chunks.set(index, { index, messages });
    this.#to = Math.max(this.#to, message.seq);
    this.#view = null;
    return true;
  }

  #drop(chunk: Chunk | undefined): void {
    if (!chunk) return;
    this.#chunks.delete(chunk.index);
    this.#size -= chunk.messages.length;
    this.#view = null;
  }
}

function lowest(page: readonly Message[]): number {
  return page.reduce((least, message) => Math.min(least, message.seq), Number.POSITIVE_INFINITY);
}

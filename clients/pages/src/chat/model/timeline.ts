import type { Message } from "./types";

/** How many places of the log one chunk spans. A chunk holds fewer messages where edits and recalls took places. */
export const chunkSpan = 32;

/** Chunk is a piece of the log: the messages of chunkSpan places, by seq. It is never changed, only replaced. */
export interface Chunk {
  readonly index: number;
  readonly messages: readonly Message[];
}

/** TimelineView is a timeline at one moment. */
export interface TimelineView {
  /** By index, without empty ones. */
  readonly chunks: readonly Chunk[];
  /** Whether the channel's first message is among them. */
  readonly atStart: boolean;
  /** Whether the newest is. */
  readonly atEnd: boolean;
}

/**
 * Timeline is one piece of a channel's log without holes, as far as it was loaded and told. Wherever two copies of a
 * message meet, the one with the higher changedSeq stays, so pages and live events may come in any order.
 *
 * A load is announced before the page is asked for (begin), and ended when it came or failed (end): what is told in
 * between and has no place yet is kept for the page, which may be older.
 */
export class Timeline {
  #chunks = new Map<number, Chunk>();
  #from = Number.POSITIVE_INFINITY; // nothing is missing from this seq on, up to #to or, at the end, without limit
  #to = 0;
  #size = 0;
  #atStart = false;
  #atEnd = false;
  #loads = 0;
  #late = new Map<string, Message>();
  #view: TimelineView | null = null;

  /** How many messages are loaded. */
  get size(): number {
    return this.#size;
  }

  /** The lowest and the highest seq loaded; 0 without any. */
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

  /** Takes what was told live, or answered to a send. It says whether that changed what is loaded. */
  apply(message: Message): boolean {
    if (this.#loads > 0) {
      const kept = this.#late.get(message.msgId);
      if (!kept || kept.changedSeq < message.changedSeq) this.#late.set(message.msgId, message);
    }
    if (message.seq < this.#from || (message.seq > this.#to && !this.#atEnd)) return false;
    return this.#put(message);
  }

  /** Notes that what came after the highest seq loaded was not told: the newest is no longer among the messages. */
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

  /** Replaces everything by the newest page. All says that it reaches the log's start. */
  newest(page: readonly Message[], all: boolean): void {
    this.#chunks.clear();
    this.#size = 0;
    this.#to = 0;
    this.#from = all ? 0 : lowest(page);
    this.#atStart = all;
    this.#atEnd = true;
    this.#merge(page);
  }

  /** Takes the page before the lowest seq loaded. All says that it reaches the log's start. */
  older(page: readonly Message[], all: boolean): void {
    this.#from = all ? 0 : Math.min(this.#from, lowest(page));
    this.#atStart = all;
    this.#merge(page);
  }

  /** Takes the page after the highest seq loaded. All says that it reached the log's end. */
  newer(page: readonly Message[], all: boolean): void {
    this.#atEnd = all;
    for (const message of page) this.#to = Math.max(this.#to, message.seq);
    this.#merge(page);
  }

  /** Gives up the newest chunks while more than limit messages are loaded. */
  dropNewest(limit: number): void {
    const chunks = this.view().chunks;
    for (let i = chunks.length - 1; i > 0 && this.#size > limit; i--) {
      this.#drop(chunks[i]);
      this.#atEnd = false;
      this.#to = chunks[i - 1]?.messages.at(-1)?.seq ?? 0;
    }
  }

  /** Gives up the oldest chunks while more than limit messages are loaded. */
  dropOldest(limit: number): void {
    const chunks = this.view().chunks;
    for (let i = 0; i < chunks.length - 1 && this.#size > limit; i++) {
      this.#drop(chunks[i]);
      this.#atStart = false;
      this.#from = chunks[i + 1]?.messages[0]?.seq ?? 0;
    }
  }

  /** The newest loaded message for which the test holds. */
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

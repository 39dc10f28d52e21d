import { signal } from "@preact/signals";
import type { Environment, Message, UserChannel } from "./types";

/** ChannelView is one line of the list of channels. It is immutable. */
export interface ChannelView {
  readonly id: string;
  readonly unread: number;
  /** The newest known message, in its current state. */
  readonly last: Message | undefined;
  /** Why the server refused or ended the channel's events. Empty if it did not. */
  readonly lost: string;
  /** What happened to a lost channel. */
  readonly loss: Loss;
  readonly membersOnly: boolean;
}

/**
 * Loss is why a channel is not followed: the user is no longer a member (`removed`), is not a
 * member (`outside`), has a token that does not allow it (`token`), or it was deleted or never
 * existed (`gone`). It is `none` for a followed channel.
 */
export type Loss = "none" | "removed" | "outside" | "token" | "gone";

interface Entry {
  id: string;
  count: number; // messages in the log
  readSeq: number;
  readCount: number; // messages in the log up to and including readSeq
  last: Message | undefined;
  lost: string;
  loss: Loss;
  lostAt: number;
  listed: boolean; // true once a listing had it
  membersOnly: boolean; // as the last listing said; false before
  opened: number; // when the user opened it; orders the list while no message is known
  view: ChannelView | null;
}

// A listing of the user's channels can be some seconds old. For this many milliseconds after a
// channel was lost, a listing that has it does not show that the user is a member again.
const lostSettles = 5_000;

/**
 * Channels holds the user's channels and counts the unread messages of each: the number of messages
 * in the log minus the number of read ones. Changes are published in list at most once per frame.
 * The channel with the newest message comes first.
 */
export class Channels {
  readonly list = signal<readonly ChannelView[]>([]);
  /** The number of unread messages in all channels. */
  readonly unread = signal(0);

  readonly #entries = new Map<string, Entry>();
  #order: Entry[] = []; // as last sorted: sorting an almost sorted list again is fast
  readonly #me: string;
  readonly #environment: Pick<Environment, "frame" | "now">;
  #dirty = false;

  constructor(me: string, environment: Pick<Environment, "frame" | "now">) {
    this.#me = me;
    this.#environment = environment;
  }

  ids(): string[] {
    return [...this.#entries.keys()];
  }

  /** Returns the ids of the channels to follow, those with the newest messages first. */
  followed(): string[] {
    return this.#sorted()
      .filter((e) => !e.lost)
      .map((e) => e.id);
  }

  /** Returns the ids of the members-only channels, those with the newest messages first. */
  membersOnly(): string[] {
    return this.#sorted()
      .filter((e) => e.membersOnly && !e.lost)
      .map((e) => e.id);
  }

  has(id: string): boolean {
    return this.#entries.has(id);
  }

  /**
   * Returns why the server refused or ended the channel's events. Empty if it did not, or if the
   * channel is not known.
   */
  lost(id: string): string {
    return this.#entries.get(id)?.lost ?? "";
  }

  readSeq(id: string): number {
    return this.#entries.get(id)?.readSeq ?? 0;
  }

  unreadOf(id: string): number {
    const entry = this.#entries.get(id);
    return entry ? unread(entry) : 0;
  }

  /** Adds a channel without any known state. It does nothing if the channel is known. */
  add(id: string): void {
    if (this.#entries.has(id)) return;
    const entry = this.#entry(id);
    entry.opened = this.#environment.now();
    this.#change(entry);
  }

  /**
   * Applies the server's listing of a channel. It reports whether the channel must be followed from
   * now on.
   */
  listed(my: UserChannel): boolean {
    const known = this.#entries.get(my.channel.channelId);
    const back = known?.lost && this.#environment.now() - known.lostAt > lostSettles;
    const entry = this.#entry(my.channel.channelId);
    if (back) this.#regain(entry);
    entry.listed = true;
    entry.membersOnly = my.channel.membersOnly;
    entry.count = Math.max(entry.count, my.channel.count);
    this.#read(entry, my.readSeq, my.channel.count - my.unread);
    this.#last(entry, my.lastMessage);
    this.#change(entry);
    return !known || Boolean(back);
  }

  /** Applies a new or changed message. */
  message(message: Message): void {
    const entry = this.#entry(message.channelId);
    entry.count = Math.max(entry.count, message.count);
    if (message.fromId === this.#me) this.#read(entry, message.seq, message.count);
    this.#last(entry, message);
    this.#change(entry);
  }

  /** Raises the number of messages in a channel's log to count, unless it is higher already. */
  counted(id: string, count: number): void {
    const entry = this.#entry(id);
    entry.count = Math.max(entry.count, count);
    this.#change(entry);
  }

  /**
   * Moves the read cursor forward to a message with this seq and count. It reports whether the
   * cursor moved.
   */
  read(id: string, seq: number, count: number): boolean {
    const entry = this.#entry(id);
    const moved = seq > entry.readSeq;
    this.#read(entry, seq, count);
    this.#change(entry);
    return moved;
  }

  /**
   * Discards all that is known of a channel whose log was replaced. The channel stays in the list.
   */
  replaced(id: string): void {
    this.remove(id);
    this.add(id);
  }

  /** Removes a channel from the list. */
  remove(id: string): void {
    const entry = this.#entries.get(id);
    if (!entry) return;
    this.#entries.delete(id);
    this.#order.splice(this.#order.indexOf(entry), 1);
    this.#change(entry);
  }

  /** Marks a channel as lost. text says why, and reason is that of the loss or of the refusal. */
  lose(id: string, text: string, reason: string): void {
    const entry = this.#entry(id);
    entry.lost = text;
    if (reason === "CAPABILITY_MISSING") entry.loss = "token";
    else if (reason === "DELETED" || reason === "CHANNEL_NOT_FOUND") entry.loss = "gone";
    else entry.loss = entry.listed ? "removed" : "outside";
    if (entry.loss === "outside") entry.membersOnly = true;
    entry.lostAt = this.#environment.now();
    this.#change(entry);
  }

  /**
   * Reports whether nothing makes a channel the user's: no listing had it and no message of it is
   * known, or the user is not a member.
   */
  foreign(id: string): boolean {
    const entry = this.#entries.get(id);
    if (!entry) return false;
    return entry.loss === "outside" || (!entry.listed && entry.loss === "none" && !entry.last && entry.count === 0);
  }

  /** Returns what happened to a channel. */
  loss(id: string): Loss {
    return this.#entries.get(id)?.loss ?? "none";
  }

  #regain(entry: Entry): void {
    entry.lost = "";
    entry.loss = "none";
  }

  #entry(id: string): Entry {
    let entry = this.#entries.get(id);
    if (!entry) {
      entry = {
        id,
        count: 0,
        readSeq: 0,
        readCount: 0,
        last: undefined,
        lost: "",
        loss: "none",
        lostAt: 0,
        listed: false,
        opened: 0,
        membersOnly: false,
        view: null,
      };
      this.#entries.set(id, entry);
      this.#order.push(entry);
    }
    return entry;
  }

  #read(entry: Entry, seq: number, count: number): void {
    entry.readSeq = Math.max(entry.readSeq, seq);
    entry.readCount = Math.max(entry.readCount, count);
  }

  #last(entry: Entry, message: Message | undefined): void {
    if (!message) return;
    const newer = !entry.last || message.seq > entry.last.seq;
    if (newer || (message.seq === entry.last?.seq && message.changedSeq > entry.last.changedSeq)) entry.last = message;
  }

  #change(entry: Entry): void {
    entry.view = null;
    if (this.#dirty) return;
    this.#dirty = true;
    this.#environment.frame(() => {
      this.#dirty = false;
      const sorted = this.#sorted();
      this.list.value = sorted.map(view);
      this.unread.value = sorted.reduce((sum, e) => sum + unread(e), 0);
    });
  }

  #sorted(): Entry[] {
    const time = (e: Entry) => e.last?.time.getTime() ?? e.opened;
    return this.#order.sort((a, b) => time(b) - time(a) || (a.id < b.id ? -1 : 1));
  }
}

function unread(entry: Entry): number {
  return entry.lost ? 0 : Math.max(0, entry.count - entry.readCount);
}

function view(entry: Entry): ChannelView {
  const { id, last, lost, loss, membersOnly } = entry;
  entry.view ??= { id, unread: unread(entry), last, lost, loss, membersOnly };
  return entry.view;
}

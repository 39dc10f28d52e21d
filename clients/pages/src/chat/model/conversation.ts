import { signal } from "@preact/signals";
import { failure } from "../../connection/failure";
import { Timeline, type TimelineView } from "./timeline";
import { aborted, type ChatClient, type Environment, type Message } from "./types";

/** pageSize is the number of messages per page. */
export const pageSize = 100;

/**
 * mostLoaded is the maximum number of messages that a conversation holds. Beyond it, scrolling
 * unloads the far end, which can be loaded again.
 */
export const mostLoaded = 20_000;

/**
 * keptNewest is the number of newest messages that stay loaded while the reader is not scrolling
 * through older ones.
 */
export const keptNewest = 2_000;

/** typingShown is the time for which a user is shown as typing, in milliseconds. */
export const typingShown = 6_000;

type Page = "newest" | "older" | "newer";

/** ConversationView is the published state of a conversation. */
export interface ConversationView extends TimelineView {
  /** True once the first page is loaded. */
  readonly loaded: boolean;
  /** The page that is being loaded, or null. */
  readonly loading: Page | null;
  /** Why the channel cannot be shown. Empty if it can. */
  readonly error: string;
  /** The ids of the users who are typing. */
  readonly typing: readonly string[];
  /** The seq after which messages are new to the reader. Null if there are none. */
  readonly divider: number | null;
}

/**
 * Conversation is the reader's view of one channel: a loaded part of its log and the users who are
 * typing. Changes are published in view at most once per frame. Pages are loaded one at a time.
 */
export class Conversation {
  readonly id: string;
  readonly view = signal<ConversationView>({
    chunks: [],
    atStart: false,
    atEnd: false,
    loaded: false,
    loading: null,
    error: "",
    typing: [],
    divider: null,
  });

  readonly #client: ChatClient;
  readonly #environment: Environment;
  readonly #signal: AbortSignal;
  readonly #newest: (message: Message) => void;
  readonly #timeline = new Timeline();
  readonly #typing = new Map<string, () => void>();
  #loading: Page | null = null;
  #reload = false;
  #loaded = false;
  #error = "";
  #divider: number | null = null;
  #dirty = false;

  /** newest is called with the channel's newest message when the newest page was loaded. */
  constructor(
    id: string,
    client: ChatClient,
    environment: Environment,
    signal: AbortSignal,
    newest: (message: Message) => void,
  ) {
    this.id = id;
    this.#client = client;
    this.#environment = environment;
    this.#signal = signal;
    this.#newest = newest;
  }

  /** True if no page was loaded and none is being loaded. */
  get untouched(): boolean {
    return !this.#loaded && this.#loading === null;
  }

  /** Applies a message from the stream, or the result of a send. */
  apply(message: Message): void {
    if (this.#timeline.apply(message)) this.#changed();
    // A reader of older messages loads the dropped ones when they scroll back.
    if (this.#timeline.size > mostLoaded && !this.#loading) this.#timeline.dropNewest(mostLoaded - keptNewest);
    if (message.changedSeq === message.seq) this.#stopsTyping(message.fromId);
  }

  /**
   * Loads the newest page and replaces the loaded messages: at first, after a gap, and to return
   * from older messages. If another page is being loaded, the newest page is loaded after that one.
   */
  async loadNewest(): Promise<void> {
    if (this.#loading) {
      this.#reload = true;
      return;
    }
    await this.#load("newest", {});
  }

  /**
   * Shows no earlier messages, because the token does not allow to read them. It does nothing if
   * there are loaded messages.
   */
  skipHistory(): void {
    if (!this.untouched) return;
    this.#timeline.newest([], true);
    this.#loaded = true;
    this.#changed();
  }

  /** Loads the newest page after a new stream began, which does not deliver earlier messages. */
  async reload(): Promise<void> {
    this.#timeline.interrupt();
    await this.loadNewest();
  }

  /** Loads the page before the first loaded message, if there is one. */
  async loadOlder(): Promise<void> {
    if (this.#loading || !this.#loaded || this.#timeline.view().atStart) return;
    await this.#load("older", { beforeSeq: Math.max(1, this.#timeline.bounds.first) });
    this.#timeline.dropNewest(mostLoaded);
  }

  /** Loads the page after the last loaded message, if the log has newer ones. */
  async loadNewer(): Promise<void> {
    if (this.#loading || !this.#loaded || this.#timeline.view().atEnd) return;
    await this.#load("newer", { afterSeq: this.#timeline.bounds.last });
    this.#timeline.dropOldest(mostLoaded);
  }

  /**
   * Unloads all but about keptNewest messages, if more than twice as many are loaded and the newest
   * is among them. Call it when the reader is at the newest ones.
   */
  trim(): void {
    if (this.#loading || this.#timeline.size <= 2 * keptNewest || !this.#timeline.view().atEnd) return;
    this.#timeline.dropOldest(keptNewest);
    this.#changed();
  }

  /** Shows that a user is typing, until they send a message or typingShown has passed. */
  isTyping(userId: string): void {
    this.#typing.get(userId)?.();
    const cancel = this.#environment.after(typingShown, () => this.#stopsTyping(userId));
    this.#typing.set(userId, cancel);
    this.#changed();
  }

  /** Sets the divider before the first message after seq. Null removes it. */
  divide(seq: number | null): void {
    if (this.#divider === seq) return;
    this.#divider = seq;
    this.#changed();
  }

  /** Sets why the channel cannot be shown. Empty means that it can. */
  fail(error: string): void {
    this.#error = error;
    this.#changed();
  }

  /** Returns the newest loaded message for which test returns true. */
  findLast(test: (message: Message) => boolean): Message | undefined {
    return this.#timeline.findLast(test);
  }

  /** Stops the timers of the users who are typing. */
  close(): void {
    for (const cancel of this.#typing.values()) cancel();
    this.#typing.clear();
  }

  async #load(kind: Page, range: { afterSeq?: number; beforeSeq?: number }): Promise<void> {
    this.#loading = kind;
    this.#timeline.begin();
    this.#changed();
    try {
      const page: Message[] = [];
      const options = { ...range, pageSize, limit: pageSize, signal: this.#signal };
      for await (const message of this.#client.history(this.id, options)) page.push(message);
      this.#timeline[kind](page, page.length < pageSize);
      this.#loaded = true;
      this.#error = "";
      if (kind === "newest" && page[0]) this.#newest(page[0]);
    } catch (cause) {
      if (aborted(this.#signal)) return;
      // The log was replaced while it was read: the loaded messages belong to the old one.
      const stale = ["RESYNC", "POSITION_OUT_OF_RANGE"].includes(failure(cause).reason) && kind !== "newest";
      if (stale) this.#reload = true;
      else this.#error = failure(cause).text;
    } finally {
      this.#timeline.end();
      this.#loading = null;
      this.#changed();
    }
    if (!this.#reload) return;
    this.#reload = false;
    await this.#load("newest", {});
  }

  #stopsTyping(userId: string): void {
    const cancel = this.#typing.get(userId);
    if (!cancel) return;
    cancel();
    this.#typing.delete(userId);
    this.#changed();
  }

  #changed(): void {
    if (this.#dirty) return;
    this.#dirty = true;
    this.#environment.frame(() => {
      this.#dirty = false;
      this.view.value = {
        ...this.#timeline.view(),
        loaded: this.#loaded,
        loading: this.#loading,
        error: this.#error,
        typing: [...this.#typing.keys()],
        divider: this.#divider,
      };
    });
  }
}

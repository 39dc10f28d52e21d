import { signal } from "@preact/signals";
import { failure } from "../../connection/failure";
import { Timeline, type TimelineView } from "./timeline";
import { aborted, type ChatClient, type Message, type Surroundings } from "./types";

/** How many messages one page asks for. */
export const pageSize = 100;

/** How many messages a conversation holds at most; scrolling on gives up the far end, which can be loaded again. */
export const mostLoaded = 20_000;

/** How many of the newest messages stay loaded while the reader is not scrolling through the past. */
export const keptNewest = 2_000;

/** For how long somebody is shown to be typing, in milliseconds. */
export const typingShown = 6_000;

type Page = "newest" | "older" | "newer";

/** ConversationView is what a conversation shows of itself. */
export interface ConversationView extends TimelineView {
  /** False until the first page came. */
  readonly loaded: boolean;
  /** The page that is on its way. */
  readonly loading: Page | null;
  /** Why the channel can't be shown; empty if it can. */
  readonly error: string;
  /** Who is typing, by user id. */
  readonly typing: readonly string[];
  /** The seq after which the messages are new to the reader; null without new ones. */
  readonly divider: number | null;
}

/**
 * Conversation is one channel as it is read: a piece of its log and who is typing. What changes is published at most
 * once per frame, in view. Pages are loaded one at a time.
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
  readonly #surroundings: Surroundings;
  readonly #signal: AbortSignal;
  readonly #newest: (message: Message) => void;
  readonly #timeline = new Timeline();
  readonly #typing = new Map<string, () => void>();
  #loading: Page | null = null;
  #again = false;
  #loaded = false;
  #error = "";
  #divider: number | null = null;
  #dirty = false;

  /** Newest is called with the channel's newest message when a page has shown it. */
  constructor(
    id: string,
    client: ChatClient,
    surroundings: Surroundings,
    signal: AbortSignal,
    newest: (message: Message) => void,
  ) {
    this.id = id;
    this.#client = client;
    this.#surroundings = surroundings;
    this.#signal = signal;
    this.#newest = newest;
  }

  /** Whether nothing was loaded yet, nor is on its way. */
  get untouched(): boolean {
    return !this.#loaded && this.#loading === null;
  }

  /** Takes a message that was told live, or answered to a send. */
  apply(message: Message): void {
    if (this.#timeline.apply(message)) this.#changed();
    // Who does not watch gets the rest when he comes back to it.
    if (this.#timeline.size > mostLoaded && !this.#loading) this.#timeline.dropNewest(mostLoaded - keptNewest);
    if (message.changedSeq === message.seq) this.#stopsTyping(message.fromId);
  }

  /** Loads the newest page in place of what is there: at first, after a gap, and to get back from the past. */
  async loadNewest(): Promise<void> {
    if (this.#loading) {
      this.#again = true;
      return;
    }
    await this.#load("newest", {});
  }

  /** Loads the newest page, as the stream has begun anew and did not tell what came before that. */
  async reload(): Promise<void> {
    this.#timeline.interrupt();
    await this.loadNewest();
  }

  /** Loads the page before the first message, if there is one. */
  async loadOlder(): Promise<void> {
    if (this.#loading || !this.#loaded || this.#timeline.view().atStart) return;
    await this.#load("older", { beforeSeq: Math.max(1, this.#timeline.bounds.first) });
    this.#timeline.dropNewest(mostLoaded);
  }

  /** Loads the page after the last message, where the log goes on beyond it. */
  async loadNewer(): Promise<void> {
    if (this.#loading || !this.#loaded || this.#timeline.view().atEnd) return;
    await this.#load("newer", { afterSeq: this.#timeline.bounds.last });
    this.#timeline.dropOldest(mostLoaded);
  }

  /** Gives up old messages once the reader is back at the newest ones. */
  trim(): void {
    if (this.#loading || this.#timeline.size <= 2 * keptNewest || !this.#timeline.view().atEnd) return;
    this.#timeline.dropOldest(keptNewest);
    this.#changed();
  }

  /** Shows that somebody is typing, until he sends or some time went by. */
  isTyping(userId: string): void {
    this.#typing.get(userId)?.();
    const cancel = this.#surroundings.after(typingShown, () => this.#stopsTyping(userId));
    this.#typing.set(userId, cancel);
    this.#changed();
  }

  /** Draws the line before the first message after seq; null takes it away. */
  divide(seq: number | null): void {
    if (this.#divider === seq) return;
    this.#divider = seq;
    this.#changed();
  }

  /** Says why the channel can't be shown, or with an empty text that it can. */
  fail(error: string): void {
    this.#error = error;
    this.#changed();
  }

  /** The newest loaded message for which the test holds. */
  findLast(test: (message: Message) => boolean): Message | undefined {
    return this.#timeline.findLast(test);
  }

  /** Stops its timers. */
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
      // The log was replaced while it was read: what is loaded belongs to another one.
      const stale = ["RESYNC", "POSITION_OUT_OF_RANGE"].includes(failure(cause).reason) && kind !== "newest";
      if (stale) this.#again = true;
      else this.#error = failure(cause).text;
    } finally {
      this.#timeline.end();
      this.#loading = null;
      this.#changed();
    }
    if (!this.#again) return;
    this.#again = false;
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
    this.#surroundings.frame(() => {
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

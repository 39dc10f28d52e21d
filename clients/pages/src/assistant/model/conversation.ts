import { OpenTexts } from "@parleyhq/sdk";
import { signal } from "@preact/signals";
import { failure } from "../../connection/failure";
import { type AssistantClient, aborted, type Environment, type Event, type Message } from "./types";

/** pageSize is the number of messages per page. */
export const pageSize = 100;

/** Entry is a message and its text, which is the text so far while the message is open. */
export interface Entry {
  readonly message: Message;
  readonly text: string;
}

/** Pending is a prompt that the server has not confirmed. */
export interface Pending {
  readonly clientMsgId: string;
  readonly content: string;
  /** Why the server permanently refused it. Empty while it may still be sent. */
  readonly refused: string;
}

/** ConversationView is the published state of a conversation. */
export interface ConversationView {
  /** The loaded messages that were not deleted, oldest first. */
  readonly entries: readonly Entry[];
  /** True if the first message is loaded. */
  readonly atStart: boolean;
  /** True once the first page is loaded. */
  readonly loaded: boolean;
  readonly loading: boolean;
  /** Why the conversation cannot be shown. Empty if it can. */
  readonly error: string;
  readonly pending: Pending | null;
  /** The answer that is being generated, or null. */
  readonly answer: Message | null;
  /** The last prompt, if no answer to it has begun. */
  readonly unanswered: Message | null;
}

/**
 * Conversation is the loaded part of one session, from pages and live events. Of two copies of a
 * message it keeps the one with the higher changedSeq, so that pages and events may arrive in any
 * order. Changes are published in view at most once per frame.
 */
export class Conversation {
  readonly id: string;
  readonly view = signal<ConversationView>({
    entries: [],
    atStart: false,
    loaded: false,
    loading: false,
    error: "",
    pending: null,
    answer: null,
    unanswered: null,
  });

  readonly #client: AssistantClient;
  readonly #environment: Environment;
  readonly #signal: AbortSignal;
  readonly #key: string;
  readonly #messages = new Map<string, Message>();
  readonly #texts = new OpenTexts();
  #entries = new Map<string, Entry>();
  #pending: Pending | null;
  #atStart = false;
  #loaded = false;
  #loading = false;
  #reload = false;
  #error = "";
  #dirty = false;

  /** me is the user. A prompt that an earlier page of this tab did not send is pending again. */
  constructor(id: string, me: string, client: AssistantClient, environment: Environment, signal: AbortSignal) {
    this.id = id;
    this.#client = client;
    this.#environment = environment;
    this.#signal = signal;
    this.#key = `parley.prompt/${encodeURIComponent(me)}/${id}`;
    this.#pending = parse(environment.storage?.getItem(this.#key) ?? null);
    if (this.#pending) this.#changed();
  }

  get pending(): Pending | null {
    return this.#pending;
  }

  /** Applies an event of the stream. */
  apply(event: Event): void {
    if ("message" in event) {
      this.put(event.message);
    } else if (this.#texts.apply(event) !== undefined) {
      this.#changed();
    }
  }

  /** Applies a message in a current state, such as one of a list. */
  put(message: Message): void {
    const known = this.#messages.get(message.msgId);
    if (known && known.changedSeq >= message.changedSeq) return;
    this.#messages.set(message.msgId, message);
    this.#texts.update(message);
    if (message.clientMsgId === this.#pending?.clientMsgId) this.propose(null);
    this.#changed();
  }

  /** Sets the prompt that is being sent, or null. It survives a reload of the page. */
  propose(pending: Pending | null): void {
    this.#pending = pending;
    try {
      if (pending) this.#environment.storage?.setItem(this.#key, JSON.stringify(pending));
      else this.#environment.storage?.removeItem(this.#key);
    } catch {
      // The storage is full or forbidden: a reload loses the prompt.
    }
    this.#changed();
  }

  /** Sets why the conversation cannot be shown. Empty means that it can. */
  fail(error: string): void {
    this.#error = error;
    this.#changed();
  }

  /** True once the first page is loaded. */
  get loaded(): boolean {
    return this.#loaded;
  }

  /** Loads the first page, which has the newest messages. */
  async loadNewest(): Promise<void> {
    if (!this.#loading) await this.#load(undefined);
  }

  /** Drops the loaded messages and loads the newest page: entries are missing on the stream. */
  async reload(): Promise<void> {
    this.#messages.clear();
    if (this.#loading) this.#reload = true;
    else await this.#load(undefined);
  }

  /** Loads the page before the first loaded message, if there is one. */
  async loadOlder(): Promise<void> {
    if (this.#loading || !this.#loaded || this.#atStart) return;
    await this.#load(Math.min(...[...this.#messages.values()].map((m) => m.seq)));
  }

  /** Returns the loaded messages after a seq that were not deleted, oldest first. */
  after(seq: number): Message[] {
    return [...this.#messages.values()]
      .filter((m) => m.seq > seq && m.status !== "recalled")
      .sort((a, b) => a.seq - b.seq);
  }

  /** Returns the last prompt. */
  lastPrompt(): Message | undefined {
    return this.after(0).findLast((m) => m.type === "user");
  }

  async #load(beforeSeq: number | undefined): Promise<void> {
    this.#loading = true;
    this.#changed();
    try {
      const page: Message[] = [];
      const range = beforeSeq === undefined ? {} : { beforeSeq };
      const options = { ...range, pageSize, limit: pageSize, signal: this.#signal };
      for await (const message of this.#client.messages(this.id, options)) page.push(message);
      for (const message of page) this.put(message);
      this.#atStart = page.length < pageSize;
      this.#error = "";
      this.#loaded = true;
    } catch (cause) {
      if (aborted(this.#signal)) return;
      const { reason, text } = failure(cause);
      // The log was replaced while it was read: the loaded messages belong to the old one.
      if (["RESYNC", "POSITION_OUT_OF_RANGE"].includes(reason) && beforeSeq !== undefined) this.#reload = true;
      else this.#error = reason === "CHANNEL_NOT_FOUND" ? gone : text;
    } finally {
      this.#loading = false;
      this.#changed();
    }
    if (!this.#reload) return;
    this.#reload = false;
    await this.reload();
  }

  #changed(): void {
    if (this.#dirty) return;
    this.#dirty = true;
    this.#environment.frame(() => {
      this.#dirty = false;
      this.#publish();
    });
  }

  #publish(): void {
    const entries = new Map<string, Entry>();
    for (const message of this.after(0)) {
      const text = this.#texts.get(message.msgId) ?? message.content;
      const known = this.#entries.get(message.msgId);
      entries.set(message.msgId, known && known.message === message && known.text === text ? known : { message, text });
    }
    this.#entries = entries;
    const list = [...entries.values()];
    const last = list.at(-1)?.message;
    this.view.value = {
      entries: list,
      atStart: this.#atStart,
      loaded: this.#loaded,
      loading: this.#loading,
      error: this.#error,
      pending: this.#pending,
      answer: list.findLast(({ message }) => message.status === "open")?.message ?? null,
      unanswered: last?.type === "user" ? last : null,
    };
  }
}

/** gone is the text for a conversation that does not exist. */
export const gone = "There is no such conversation, or it was deleted.";

function parse(text: string | null): Pending | null {
  try {
    const value = JSON.parse(text ?? "") as Partial<Pending>;
    const whole = [value.clientMsgId, value.content, value.refused].every((s) => typeof s === "string");
    return whole ? (value as Pending) : null;
  } catch {
    return null;
  }
}

import { signal } from "@preact/signals";
import { type Failure, failure } from "../../connection/failure";
import { Connection } from "../../connection/state";
import { Conversation, gone } from "./conversation";
import { Sessions } from "./sessions";
import {
  type AssistantClient,
  type AssistantSubscription,
  aborted,
  type EntryEvent,
  type Environment,
  type Event,
  type Message,
  type SessionInfo,
  type StateChange,
  sessionOf,
} from "./types";

/** The number of conversations that stay loaded and followed. */
const kept = 8;
/** The number of sessions that a refresh lists. */
const refreshed = 200;
const listEvery = 30_000;
/** The maximum length of a title, in code points. The server's limit is 256 bytes. */
const titleLength = 60;

const losses: Partial<Record<string, string>> = {
  CAPABILITY_MISSING: "Your token no longer allows you to read this conversation.",
  DELETED: "This conversation was deleted.",
};

/**
 * Assistant is the state of one user: their sessions and the open conversation. It follows the
 * conversations that were opened last on one stream. A conversation is loaded after the stream
 * reported its state, so that no message is missed between the loaded ones and the stream.
 */
export class Assistant {
  readonly me: string;
  readonly sessions: Sessions;
  /** True once the list of sessions was loaded. */
  readonly listed = signal(false);
  /** The open conversation, or null for a new one. */
  readonly open = signal<Conversation | null>(null);
  /** Why the last operation failed. Empty if there is nothing to show. */
  readonly notice = signal("");
  /** The ids of the answers that the user has stopped, until the stream says so. */
  readonly stopping = signal<ReadonlySet<string>>(new Set());

  readonly #client: AssistantClient;
  readonly #environment: Environment;
  readonly #connection = new Connection();
  readonly #stop = new AbortController();
  readonly #conversations = new Map<string, Conversation>(); // the most recently opened one is last
  readonly #followed = new Set<string>();
  #subscription: AssistantSubscription | null = null;
  #wasLive = false;
  #listing = false;
  #visible = false;
  #marked = new Map<string, number>();
  #cancelList: (() => void) | null = null;

  constructor(client: AssistantClient, me: string, environment: Environment) {
    this.me = me;
    this.#client = client;
    this.#environment = environment;
    this.sessions = new Sessions(() => environment.now());
  }

  get connection(): Connection["current"] {
    return this.#connection.current;
  }

  /** Lists the sessions and follows the open ones. It resolves when following ends. */
  async start(): Promise<void> {
    void this.#list(true);
    this.#scheduleList();
    await this.#follow();
  }

  /** Stops all work and closes the client. A prompt that is being sent stays in the storage. */
  close(): void {
    this.#stop.abort();
    this.#cancelList?.();
    this.#subscription?.close();
    this.#client.close();
  }

  /** Opens a conversation, or for null a new one. */
  show(id: string | null): void {
    this.notice.value = "";
    if (id === null || id === this.open.value?.id) {
      if (id === null) this.open.value = null;
      return;
    }
    const known = this.#conversations.get(id);
    const conversation = known ?? this.#conversation(id);
    this.#keep(conversation);
    this.open.value = conversation;
    if (conversation.pending && !known) void this.#send(conversation);
    else this.#add(id);
    this.#read();
  }

  /**
   * Sends a prompt to the open conversation, or to a new one, and returns the id of the
   * conversation. It returns null if the text is blank, or a prompt is pending.
   */
  ask(text: string): string | null {
    const conversation = this.open.value ?? this.#conversation(this.#environment.id());
    if (text.trim() === "" || conversation.pending) return null;
    this.#keep(conversation);
    this.open.value = conversation;
    conversation.propose({ clientMsgId: this.#environment.id(), content: text, refused: "" });
    void this.#send(conversation);
    return conversation.id;
  }

  /** Sends the refused prompt of the open conversation again. */
  retry(): void {
    const conversation = this.open.value;
    if (!conversation?.pending) return;
    conversation.propose({ ...conversation.pending, refused: "" });
    void this.#send(conversation);
  }

  /** Discards the refused prompt of the open conversation, and returns its text. */
  discard(): string {
    const text = this.open.value?.pending?.content ?? "";
    this.open.value?.propose(null);
    return text;
  }

  /** Stops the answer that is being generated in the open conversation. */
  async stop(): Promise<void> {
    const conversation = this.open.value;
    const answer = conversation?.view.value.answer;
    if (!conversation || !answer || this.stopping.value.has(answer.msgId)) return;
    this.stopping.value = new Set(this.stopping.value).add(answer.msgId);
    const options = { signal: this.#stop.signal };
    await this.#try(async () => {
      try {
        await this.#client.cancel(conversation.id, answer.msgId, options);
      } catch (cause) {
        // Somebody else closed it, or the answer was complete.
        if (!["MESSAGE_CLOSED", "MESSAGE_RECALLED"].includes(failure(cause).reason)) throw cause;
      }
    });
    const rest = new Set(this.stopping.value);
    rest.delete(answer.msgId);
    this.stopping.value = rest;
  }

  /**
   * Replaces the text of a prompt of the open conversation, which asks for a new answer to it. The
   * messages after it are deleted before. With the same text it only asks again. It reports whether
   * the server did so. If not, notice has the reason.
   */
  async askAgain(prompt: Message, text: string): Promise<boolean> {
    const conversation = this.open.value;
    if (!conversation) return false;
    const options = { signal: this.#stop.signal };
    return await this.#try(async () => {
      for (const { msgId } of conversation.after(prompt.seq)) {
        await this.#client.recall(conversation.id, msgId, options);
      }
      await this.#client.edit(conversation.id, prompt.msgId, text, options);
    });
  }

  /** Sets the title of a session. It rejects if the server refuses it. */
  async rename(id: string, title: string): Promise<void> {
    await this.#client.rename(id, title, { signal: this.#stop.signal });
    this.sessions.update(id, { title });
    this.#environment.changed();
  }

  /** Deletes a session. It rejects if the server refuses it. */
  async remove(id: string): Promise<void> {
    await this.#client.remove(id, { signal: this.#stop.signal });
    this.#forget(id);
    this.#environment.changed();
  }

  /** Sets whether the user sees the newest messages of the open conversation, which reads them. */
  watch(visible: boolean): void {
    this.#visible = visible;
    this.#read();
  }

  /** Lists the sessions again, those with the latest activity, unless a listing is running. */
  async refresh(): Promise<void> {
    if (!this.#listing && this.connection.value.state === "live") await this.#list(false);
  }

  /** Reports whether the user may write to a conversation, or to a new one if id is null. */
  canWrite(id: string | null): boolean {
    return this.#client.can("append", id ?? "");
  }

  async #follow(): Promise<void> {
    const subscription = this.#client.subscribe((change) => this.#state(change));
    this.#subscription = subscription;
    try {
      for (;;) this.#event(await subscription.next());
    } catch (cause) {
      if (!aborted(this.#stop.signal)) this.#connection.end(failure(cause));
    } finally {
      subscription.close();
    }
  }

  #state({ state, wait, error }: StateChange): void {
    if (state === "ended") return; // the error of next has the reason
    if (state === "waiting") {
      const until = this.#environment.now() + (wait ?? 0);
      this.#connection.to({ state, reason: error ? failure(error).text : "", until });
      return;
    }
    this.#connection.to({ state });
    if (state !== "live" || this.#wasLive) return;
    // Before the first stream is live, a refused session would end the subscription.
    this.#wasLive = true;
    for (const id of this.#followed) void this.#subscribe(id);
  }

  #event(event: Event): void {
    const id = sessionOf(event);
    const conversation = this.#conversations.get(id);
    switch (event.kind) {
      case "sent":
      case "edited":
      case "recalled":
      case "closed":
        this.#changed(id, event);
        conversation?.apply(event);
        this.#read();
        return;
      case "delta":
        conversation?.apply(event);
        return;
      case "channel_state":
        if (!conversation) return;
        conversation.fail("");
        if (!conversation.loaded) void conversation.loadNewest().then(() => this.#read());
        return;
      case "gap":
        void conversation?.reload().then(() => this.#read());
        return;
      case "lost":
        this.#followed.delete(id);
        conversation?.apply(event);
        conversation?.fail(losses[event.reason] ?? gone);
        if (event.reason === "DELETED") this.#forget(id, false);
        return;
    }
  }

  // Shows a change of a message in the list.
  #changed(id: string, { kind, message }: EntryEvent): void {
    if (kind === "sent") this.sessions.touch(id, message.time);
    if (message.status === "open") this.sessions.update(id, { answering: true });
    else if (kind === "closed" || kind === "recalled") this.sessions.update(id, { answering: false });
    const isNew = (kind === "sent" && message.status !== "open") || kind === "closed";
    const sees = this.#visible && this.open.value?.id === id;
    const known = this.sessions.get(id);
    if (known && isNew && !sees && message.fromId !== this.me) {
      this.sessions.update(id, { unread: known.unread + 1 });
    }
  }

  // Follows a session. Without a live stream, this happens when there is one.
  #add(id: string): void {
    if (this.#followed.has(id)) return;
    this.#followed.add(id);
    if (this.#wasLive) void this.#subscribe(id);
  }

  async #subscribe(id: string): Promise<void> {
    try {
      await this.#subscription?.add(id);
    } catch (cause) {
      if (aborted(this.#stop.signal) || !this.#followed.delete(id)) return;
      const why = failure(cause);
      this.#conversations.get(id)?.fail(why.reason === "CHANNEL_NOT_FOUND" ? gone : why.text);
    }
  }

  #conversation(id: string): Conversation {
    return new Conversation(id, this.me, this.#client, this.#environment, this.#stop.signal);
  }

  // Keeps the conversations that were opened last. One with a prompt that is being sent stays.
  #keep(conversation: Conversation): void {
    this.#conversations.delete(conversation.id);
    this.#conversations.set(conversation.id, conversation);
    for (const [id, other] of this.#conversations) {
      if (this.#conversations.size <= kept) return;
      if (other === this.open.value || other === conversation || other.pending) continue;
      this.#conversations.delete(id);
      this.#unfollow(id);
    }
  }

  #unfollow(id: string): void {
    if (this.#followed.delete(id)) this.#subscription?.remove(id).catch(() => {});
    this.sessions.update(id, { answering: false });
  }

  // Removes a deleted session. With forgotten false the open conversation stays, to say so.
  #forget(id: string, forgotten = true): void {
    this.sessions.remove(id);
    this.#conversations.get(id)?.propose(null);
    if (!forgotten) return;
    this.#unfollow(id);
    this.#conversations.delete(id);
    if (this.open.value?.id === id) this.open.value = null;
  }

  async #send(conversation: Conversation): Promise<void> {
    const { id, pending } = conversation;
    if (pending?.refused !== "") {
      this.#add(id);
      return;
    }
    const { clientMsgId, content } = pending;
    const isNew = this.sessions.get(id) === undefined;
    const title = titleOf(content);
    try {
      const receipt = await this.#client.append(id, content, { clientMsgId, title, signal: this.#stop.signal });
      conversation.put({
        ...receipt,
        fromId: this.me,
        type: "user",
        content,
        metadata: {},
        status: "sent",
        changedSeq: receipt.seq,
      });
      this.sessions.touch(id, receipt.time, title);
      conversation.fail("");
      this.#add(id);
      if (isNew) this.#environment.changed();
    } catch (cause) {
      if (aborted(this.#stop.signal)) return;
      const why = failure(cause);
      conversation.propose({ ...pending, refused: why.text });
      this.#endFor(why);
    }
  }

  #read(): void {
    const conversation = this.open.value;
    if (!conversation || !this.#visible) return;
    const last = conversation.after(0).at(-1);
    if (!last || last.status === "open" || (this.#marked.get(conversation.id) ?? 0) >= last.seq) return;
    this.#marked.set(conversation.id, last.seq);
    this.sessions.update(conversation.id, { unread: 0 });
    // A failure only means that the number of unread messages is shown again.
    this.#client.markRead(conversation.id, last.seq, { signal: this.#stop.signal }).catch(() => {});
  }

  async #list(all: boolean): Promise<void> {
    this.#listing = true;
    try {
      const found: SessionInfo[] = [];
      let whole = true;
      for await (const info of this.#client.sessions({ pageSize: refreshed, signal: this.#stop.signal })) {
        found.push(info);
        if (all || found.length < refreshed) continue;
        whole = false;
        break;
      }
      this.sessions.listed(found, whole);
      this.listed.value = true;
    } catch (cause) {
      if (aborted(this.#stop.signal)) return;
      const why = failure(cause);
      if (why.remedy === "none") this.notice.value = why.text;
      this.#endFor(why);
    } finally {
      this.#listing = false;
    }
  }

  #scheduleList(): void {
    this.#cancelList = this.#environment.after(listEvery, () => {
      void this.refresh();
      this.#scheduleList();
    });
  }

  #endFor(why: Failure): void {
    if (why.remedy !== "none") this.#connection.end(why);
  }

  async #try(call: () => Promise<unknown>): Promise<boolean> {
    try {
      await call();
      this.notice.value = "";
      return true;
    } catch (cause) {
      if (aborted(this.#stop.signal)) return false;
      const why = failure(cause);
      this.notice.value = why.text;
      if (why.remedy === "token") this.#connection.end(why);
      return false;
    }
  }
}

/** titleOf returns the title of a session that begins with a prompt: its first line, shortened. */
export function titleOf(prompt: string): string {
  const line = prompt.trim().split("\n", 1)[0]?.trim() ?? "";
  const points = [...line];
  return points.length <= titleLength
    ? line
    : `${points
        .slice(0, titleLength - 1)
        .join("")
        .trimEnd()}…`;
}

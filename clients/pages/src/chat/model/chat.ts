import { computed, type ReadonlySignal, signal } from "@preact/signals";
import { failure } from "../../connection/failure";
import type { Connection } from "../../connection/state";
import { Channels } from "./channels";
import { Conversation } from "./conversation";
import { Follower } from "./follower";
import { Online } from "./online";
import { Outbox, type Pending } from "./outbox";
import { Sender } from "./sender";
import { aborted, type ChatClient, type Environment, type Event, type Message, type Receipt } from "./types";

const keptConversations = 8;
const typingEvery = 3_000;
const typingPassedOver = 1_100; // the server ignores a second event within a second
const listEvery = 30_000;
const markEvery = 1_000;
const leftToWriter = 2_000; // for this time only the tab in which a message was written sends it

/**
 * Chat is the state of one user: their channels, the open channel and their unsent messages. It
 * follows all channels on one stream. An open channel's messages are loaded after the stream
 * reported the channel's state, so that no message is missed between the loaded messages and the
 * stream.
 */
export class Chat {
  readonly me: string;
  readonly channels: Channels;
  /** Who is online in the members-only channels. */
  readonly online: Online;
  /** The open channel, or null. */
  readonly open = signal<Conversation | null>(null);
  /** The unsent messages of the open channel, oldest first. */
  readonly pending: ReadonlySignal<readonly Pending[]>;
  /** Why the last edit, recall or listing of channels failed. Empty if there is nothing to show. */
  readonly notice = signal("");

  readonly #client: ChatClient;
  readonly #environment: Environment;
  readonly #outbox: Outbox;
  readonly #sender: Sender;
  readonly #follower: Follower;
  readonly #stop = new AbortController();
  readonly #conversations = new Map<string, Conversation>(); // the most recently opened one is last
  readonly #onStream = new Set<string>(); // channels whose state arrived on the stream
  readonly #marking = new Map<string, Message>(); // the last message seen of each channel with a call in flight
  readonly #outboxVersion = signal(0);
  #typedAt = 0; // when the last typing event was sent
  #sentSinceTyping = true; // whether the user has sent a message since then
  #cancelTyping: (() => void) | null = null;
  #cancelList: (() => void) | null = null;
  #watching = false;
  #listing = false;

  constructor(client: ChatClient, me: string, environment: Environment) {
    this.me = me;
    this.#client = client;
    this.#environment = environment;
    this.channels = new Channels(me, environment);
    this.online = new Online(client, this.#stop.signal);
    this.#outbox = new Outbox(me, environment);
    this.#follower = new Follower(client, this.#stop.signal, () => environment.now(), {
      event: (event) => this.#event(event),
      refused: (id, why) => this.#lost(id, why),
      restarted: () => this.#onStream.clear(),
      evict: (follows) => this.#evict(follows),
    });
    this.#sender = new Sender(client, this.#outbox, this.#stop.signal, {
      stored: (pending, receipt) => this.#message(stored(pending, receipt, me)),
      changed: () => this.#outboxVersion.value++,
      refused: (why) => this.#follower.connection.end(why),
    });
    this.pending = computed(() => {
      this.#outboxVersion.value;
      return this.open.value ? this.#outbox.of(this.open.value.id) : [];
    });
  }

  get connection(): Connection["current"] {
    return this.#follower.connection.current;
  }

  /**
   * Lists and follows the channels, and sends the messages that an earlier page left unsent. It
   * resolves when following ends.
   */
  async start(): Promise<void> {
    for (const id of this.#outbox.channels()) {
      this.channels.add(id);
      void this.#sender.kick(id);
    }
    await this.#list();
    if (this.#stop.signal.aborted || this.connection.value.state === "ended") return;
    this.#scheduleList();
    void this.online.run();
    this.#watchMembers();
    await this.#follower.run(this.channels.followed());
  }

  /** Stops all work and closes the client. Unsent messages stay in the storage. */
  close(): void {
    this.#stop.abort();
    this.#cancelList?.();
    for (const conversation of this.#conversations.values()) conversation.close();
    this.#client.close();
  }

  /** Opens a channel, known or not. Null closes the open one. */
  show(id: string | null): void {
    const before = this.open.value;
    if (before?.id === id) return;
    this.#stopTyping();
    before?.divide(null);
    before?.trim();
    this.#watching = false;
    if (id === null) {
      this.open.value = null;
      return;
    }
    this.channels.add(id);
    const conversation = this.#conversation(id);
    if (this.channels.unreadOf(id) > 0) conversation.divide(this.channels.readSeq(id));
    conversation.fail(this.channels.lost(id));
    this.open.value = conversation;
    this.#watchMembers();
    if (!this.channels.lost(id)) {
      void this.#follower.add(id);
      if (this.#onStream.has(id) && conversation.untouched) void conversation.loadNewest();
    }
  }

  /**
   * Sends a text to the open channel. A text that begins with "/me " is an action. A blank text is
   * ignored.
   */
  send(text: string): void {
    const conversation = this.open.value;
    if (!conversation || text.trim() === "") return;
    const action = text.startsWith("/me ") && text.length > 4;
    this.#outbox.add(conversation.id, action ? text.slice(4) : text, action ? "action" : "text");
    this.#outboxVersion.value++;
    this.#stopTyping();
    conversation.divide(null);
    void this.#sender.kick(conversation.id);
  }

  /** Sends a refused message again. In the log it comes after the messages that were sent since. */
  retry(pending: Pending): void {
    this.#outbox.refuse(pending.clientMsgId, "");
    this.#outboxVersion.value++;
    void this.#sender.kick(pending.channelId);
  }

  /** Discards a refused message. */
  discard(pending: Pending): void {
    this.#outbox.remove(pending.clientMsgId);
    this.#outboxVersion.value++;
  }

  /**
   * Applies another tab's change of a storage key. This tab sends a message that the other tab
   * wrote and has not sent after 2 s.
   */
  storedElsewhere(key: string): void {
    const change = this.#outbox.sync(key);
    if (!change) return;
    this.#outboxVersion.value++;
    if (!change.written) return;
    this.channels.add(change.channelId);
    this.#environment.after(leftToWriter, () => void this.#sender.kick(change.channelId));
  }

  /**
   * Replaces the text of an own message. It reports whether the server did so. If not, notice has
   * the reason.
   */
  async edit(message: Message, text: string): Promise<boolean> {
    return await this.#try(() =>
      this.#client.edit(message.channelId, message.msgId, text, { signal: this.#stop.signal }),
    );
  }

  /** Recalls an own message. If that fails, notice has the reason. */
  async recall(message: Message): Promise<void> {
    await this.#try(() => this.#client.recall(message.channelId, message.msgId, { signal: this.#stop.signal }));
  }

  /** Reports whether the user may edit and recall the message. */
  own(message: Message): boolean {
    return message.fromId === this.me && message.status !== "recalled";
  }

  /** Sends a typing event, at most every 3 s; after a send, at most every 1.1 s. */
  typing(): void {
    const conversation = this.open.value;
    if (!conversation || this.connection.value.state !== "live") return;
    const now = this.#environment.now();
    if (this.#sentSinceTyping && now - this.#typedAt < typingPassedOver) {
      this.#cancelTyping ??= this.#environment.after(typingPassedOver, () => {
        this.#cancelTyping = null;
        this.typing();
      });
      return;
    }
    if (!this.#sentSinceTyping && now - this.#typedAt < typingEvery) return;
    this.#typedAt = now;
    this.#sentSinceTyping = false;
    // It may be lost: the next event follows in 3 s.
    this.#client.typing(conversation.id, { signal: this.#stop.signal }).catch(() => {});
  }

  /**
   * Sets whether the user sees the open channel's newest messages. While they do, the messages are
   * marked read.
   */
  watch(sees: boolean): void {
    this.#watching = sees;
    const conversation = sees ? this.open.value : null;
    const last = conversation?.findLast(() => true);
    if (last) this.#seen(last);
    conversation?.trim();
  }

  /**
   * Records that the user read a channel in another tab, up to a message with this seq and count.
   */
  readElsewhere(id: string, seq: number, count: number): void {
    if (this.channels.has(id)) this.channels.read(id, seq, count);
  }

  /**
   * Lists the channels again and follows new ones. It does nothing while the connection is not live
   * or a listing is running.
   */
  async refresh(): Promise<void> {
    if (!this.#listing && this.connection.value.state === "live") await this.#list();
  }

  #event(event: Event): void {
    switch (event.kind) {
      case "sent":
      case "edited":
      case "recalled":
        this.#message(event.message);
        return;
      case "channel_state":
        this.channels.counted(event.channelId, event.state.count);
        this.#stateArrived(event.channelId);
        return;
      case "gap":
        this.channels.replaced(event.channelId);
        void this.#list();
        void this.#conversations.get(event.channelId)?.loadNewest();
        return;
      case "lost":
        this.#lost(
          event.channelId,
          event.reason === "CAPABILITY_MISSING"
            ? "Your token no longer allows you to read this channel."
            : "You are no longer a member of this channel.",
        );
        return;
      case "typing":
        if (event.userId !== this.me) this.#conversations.get(event.channelId)?.isTyping(event.userId);
        return;
    }
  }

  #stopTyping(): void {
    this.#sentSinceTyping = true;
    this.#cancelTyping?.();
    this.#cancelTyping = null;
  }

  #message(message: Message): void {
    const conversation = this.#conversations.get(message.channelId);
    const unread = this.channels.unreadOf(message.channelId);
    this.channels.message(message);
    conversation?.apply(message);
    if (message.fromId === this.me) {
      if (this.#outbox.remove(message.clientMsgId)) this.#outboxVersion.value++;
    } else if (conversation && conversation === this.open.value && this.#watching) {
      this.#seen(message);
    } else if (unread === 0 && this.channels.unreadOf(message.channelId) > 0) {
      conversation?.divide(this.channels.readSeq(message.channelId));
    }
  }

  #stateArrived(id: string): void {
    const anew = !this.#onStream.has(id);
    this.#onStream.add(id);
    const conversation = this.#conversations.get(id);
    conversation?.fail("");
    if (anew || conversation?.untouched) void conversation?.reload();
  }

  // Returns the followed channel to give up: not the open one, and the one without a new message
  // for the longest time.
  #evict(follows: (id: string) => boolean): string | undefined {
    const evicted = this.channels.followed().findLast((id) => follows(id) && id !== this.open.value?.id);
    if (evicted !== undefined) this.#onStream.delete(evicted);
    return evicted;
  }

  #lost(id: string, why: string): void {
    this.#follower.drop(id);
    this.#onStream.delete(id);
    this.channels.lose(id, why);
    this.#conversations.get(id)?.fail(why);
  }

  #conversation(id: string): Conversation {
    const conversation =
      this.#conversations.get(id) ??
      new Conversation(id, this.#client, this.#environment, this.#stop.signal, (newest) =>
        this.channels.message(newest),
      );
    this.#conversations.delete(id);
    this.#conversations.set(id, conversation);
    const oldest = this.#conversations.keys().next().value;
    if (this.#conversations.size > keptConversations && oldest !== undefined) {
      this.#conversations.get(oldest)?.close();
      this.#conversations.delete(oldest);
    }
    return conversation;
  }

  async #list(): Promise<void> {
    this.#listing = true;
    try {
      const found: string[] = [];
      for await (const my of this.#client.channels({ pageSize: 200, signal: this.#stop.signal })) {
        if (this.channels.listed(my)) found.push(my.channel.channelId);
      }
      for (const id of found) this.online.regained(id);
      this.#watchMembers();
      if (this.connection.value.state !== "live") return;
      for (const id of found) await this.#follower.add(id);
    } catch (cause) {
      if (aborted(this.#stop.signal)) return;
      const why = failure(cause);
      if (why.remedy === "token") this.#follower.connection.end(why);
      else this.notice.value = why.text;
    } finally {
      this.#listing = false;
    }
  }

  // The open channel is watched first, then those with the newest messages.
  #watchMembers(): void {
    const ids = this.channels.membersOnly();
    const open = this.open.value?.id;
    this.online.watch(open !== undefined && ids.includes(open) ? [...new Set([open, ...ids])] : ids);
  }

  #scheduleList(): void {
    this.#cancelList = this.#environment.after(listEvery, () => {
      void this.refresh();
      this.#scheduleList();
    });
  }

  #seen(message: Message): void {
    if (this.channels.read(message.channelId, message.seq, message.count)) void this.#mark(message);
  }

  async #mark(message: Message): Promise<void> {
    const id = message.channelId;
    const underway = this.#marking.has(id);
    this.#marking.set(id, message);
    if (underway) return;
    try {
      for (let done: Message | undefined; done !== this.#marking.get(id); ) {
        done = this.#marking.get(id) ?? message;
        this.#environment.read(id, done.seq, done.count);
        await this.#client.markRead(id, done.seq, { signal: this.#stop.signal });
        await new Promise<void>((resolve) => this.#environment.after(markEvery, resolve));
      }
    } catch {
      // The next message that the user sees marks these as well.
    } finally {
      this.#marking.delete(id);
    }
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
      if (why.remedy === "token") this.#follower.connection.end(why);
      return false;
    }
  }
}

// stored returns the message that the server stored, as the stream will deliver it too.
function stored(pending: Pending, receipt: Receipt, me: string): Message {
  return {
    msgId: receipt.msgId,
    channelId: pending.channelId,
    seq: receipt.seq,
    count: receipt.count,
    fromId: me,
    type: pending.type,
    content: pending.content,
    metadata: {},
    clientMsgId: pending.clientMsgId,
    time: receipt.time,
    status: "sent",
    changedSeq: receipt.seq,
  };
}

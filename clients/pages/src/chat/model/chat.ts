import { computed, type ReadonlySignal, signal } from "@preact/signals";
import { failure } from "../../connection/failure";
import type { Connection } from "../../connection/state";
import { Channels } from "./channels";
import { Conversation } from "./conversation";
import { Directory } from "./directory";
import { Follower } from "./follower";
import { Online } from "./online";
import { Outbox, type Pending } from "./outbox";
import { Reading } from "./reading";
import { Sender } from "./sender";
import { aborted, type ChannelAction, type ChatClient, type Environment, type Event, type Message } from "./types";
import { Typist } from "./typist";

const keptConversations = 8;
const listEvery = 30_000;
const losses: Partial<Record<string, string>> = {
  CAPABILITY_MISSING: "Your token no longer allows you to read this channel.",
  DELETED: "This channel was deleted.",
};
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
  /** Finds channels by what the user enters. */
  readonly directory: Directory;
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
  readonly #reading: Reading;
  readonly #typist: Typist;
  readonly #stop = new AbortController();
  readonly #conversations = new Map<string, Conversation>(); // the most recently opened one is last
  readonly #onStream = new Set<string>(); // channels whose state arrived on the stream
  readonly #typedIn = new Set<string>(); // channels in which the user began to write
  readonly #outboxVersion = signal(0);
  #cancelList: (() => void) | null = null;
  #watching = false;
  #listing = false;

  constructor(client: ChatClient, me: string, environment: Environment) {
    this.me = me;
    this.#client = client;
    this.#environment = environment;
    this.channels = new Channels(me, environment);
    this.online = new Online(client, this.#stop.signal);
    this.directory = new Directory(
      client,
      this.channels.list,
      environment,
      () => this.connection.value.state === "live",
    );
    this.#reading = new Reading(client, environment, this.channels, this.#stop.signal);
    this.#typist = new Typist(client, environment, this.#stop.signal, () => this.#typingChannel());
    this.#outbox = new Outbox(me, environment);
    this.#follower = new Follower(client, this.#stop.signal, () => environment.now(), {
      event: (event) => this.#event(event),
      refused: (id, why) => this.#end(id, why.text, why.reason),
      restarted: () => this.#onStream.clear(),
      evict: (follows) => this.#evict(follows),
    });
    this.#sender = new Sender(client, this.#outbox, me, this.#stop.signal, {
      stored: (message) => this.#message(message),
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
    await this.#follower.run(this.channels.followed().filter((id) => this.can("subscribe", id)));
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
    this.#typist.stop();
    before?.divide(null);
    before?.trim();
    if (before) this.#forget(before.id);
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
    if (this.channels.lost(id)) return;
    if (!this.can("subscribe", id)) this.#load(conversation);
    else if (this.#onStream.has(id) && conversation.untouched) this.#load(conversation);
    if (this.can("subscribe", id)) void this.#follower.add(id);
  }

  /** Reports whether the token allows an action on a channel. */
  can(action: ChannelAction, channelId: string): boolean {
    return this.#client.can(action, channelId);
  }

  /**
   * Reports whether the server says that a channel does not exist, within a few seconds. It does
   * not reject.
   */
  async absent(channelId: string): Promise<boolean> {
    return (await this.#client.lookup(channelId)).kind === "free";
  }

  /** Reports whether the user can send to a channel, as far as it is known. */
  canWrite(channelId: string): boolean {
    return this.can("send", channelId) && !this.channels.lost(channelId);
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
    this.#typist.stop();
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
    return message.fromId === this.me && message.status !== "recalled" && this.canWrite(message.channelId);
  }

  /** Records that the user typed a text for the open channel. */
  typing(): void {
    if (this.open.value) this.#typedIn.add(this.open.value.id);
    this.#typist.typed();
  }

  /**
   * Sets whether the user sees the open channel's newest messages. While they do, the messages are
   * marked read.
   */
  watch(sees: boolean): void {
    this.#watching = sees;
    const conversation = sees ? this.open.value : null;
    const last = conversation?.findLast(() => true);
    if (last) this.#reading.seen(last);
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
      case "closed":
        this.#message(event.message);
        return;
      case "channel_state":
        if (!this.channels.has(event.channelId)) return; // it was removed from the list meanwhile
        this.channels.counted(event.channelId, event.state.count);
        if (event.channelId !== this.open.value?.id) this.#forget(event.channelId);
        if (this.channels.has(event.channelId)) this.#stateArrived(event.channelId);
        return;
      case "gap":
        this.channels.replaced(event.channelId);
        void this.#list();
        this.#reload(event.channelId);
        return;
      case "lost":
        this.#end(event.channelId, losses[event.reason] ?? "You are no longer a member of this channel.", event.reason);
        return;
      case "typing":
        if (event.userId !== this.me) this.#conversations.get(event.channelId)?.isTyping(event.userId);
        return;
    }
  }

  #typingChannel(): string | null {
    const id = this.open.value?.id;
    return id !== undefined && this.connection.value.state === "live" && this.can("send", id) ? id : null;
  }

  #message(message: Message): void {
    const conversation = this.#conversations.get(message.channelId);
    const unread = this.channels.unreadOf(message.channelId);
    this.channels.message(message);
    conversation?.apply(message);
    if (message.fromId === this.me) {
      if (this.#outbox.remove(message.clientMsgId)) this.#outboxVersion.value++;
    } else if (conversation && conversation === this.open.value && this.#watching) {
      this.#reading.seen(message);
    } else if (unread === 0 && this.channels.unreadOf(message.channelId) > 0) {
      conversation?.divide(this.channels.readSeq(message.channelId));
    }
  }

  #stateArrived(id: string): void {
    const anew = !this.#onStream.has(id);
    this.#onStream.add(id);
    const conversation = this.#conversations.get(id);
    conversation?.fail("");
    if (anew || conversation?.untouched) this.#reload(id);
  }

  #load(conversation: Conversation): void {
    if (this.can("history", conversation.id)) void conversation.loadNewest();
    else conversation.skipHistory();
  }

  #reload(id: string): void {
    const conversation = this.#conversations.get(id);
    if (this.can("history", id)) void conversation?.reload();
    else conversation?.skipHistory();
  }

  // Returns the followed channel to give up: not the open one, and the one without a new message
  // for the longest time.
  #evict(follows: (id: string) => boolean): string | undefined {
    const evicted = this.channels.followed().findLast((id) => follows(id) && id !== this.open.value?.id);
    if (evicted !== undefined) this.#onStream.delete(evicted);
    return evicted;
  }

  #end(id: string, why: string, reason: string): void {
    this.#follower.drop(id);
    this.#onStream.delete(id);
    this.channels.lose(id, why, reason);
    this.#conversations.get(id)?.fail(why);
  }

  // A channel that was opened and never was the user's does not stay in the list, unless the user
  // began to write in it. Between two streams a followed one stays until its state arrives: the
  // next stream may already be requested with it, and an error of that request names it by its
  // position.
  #forget(id: string): void {
    if (!this.channels.foreign(id) || this.#typedIn.has(id) || this.#outbox.of(id).length > 0) return;
    if (!this.channels.lost(id) && this.connection.value.state !== "live") return;
    this.#follower.remove(id);
    this.#onStream.delete(id);
    this.channels.remove(id);
    this.#conversations.get(id)?.close();
    this.#conversations.delete(id);
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
      for (const id of found) if (this.can("subscribe", id)) await this.#follower.add(id);
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

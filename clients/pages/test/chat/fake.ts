import { Chat } from "../../src/chat/model/chat";
import type {
  ChannelAction,
  ChatClient,
  Environment,
  Event,
  Message,
  StateChange,
  UserChannel,
} from "../../src/chat/model/types";

/**
 * dice returns a pseudo-random function of integers from 0 to sides - 1. The same seed returns the
 * same sequence on every run.
 */
export function dice(seed: number): (sides: number) => number {
  let state = seed * 2_654_435_761 + 1;
  return (sides) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return (state >> 8) % sides;
  };
}

/** FakeLog is a channel's log: the appended entries, and each message in its current state. */
export class FakeLog {
  readonly messages: Message[] = [];
  seq = 0;

  constructor(readonly channelId: string) {}

  send(fromId: string, content: string, clientMsgId = "", type = "text"): Message {
    this.seq++;
    const message: Message = {
      msgId: `m${this.seq}`,
      channelId: this.channelId,
      seq: this.seq,
      count: this.messages.length + 1,
      fromId,
      type,
      content,
      metadata: {},
      clientMsgId,
      time: new Date(Date.UTC(2026, 0, 1) + this.seq * 1_000),
      status: "sent",
      changedSeq: this.seq,
    };
    this.messages.push(message);
    return message;
  }

  change(at: number, status: "edited" | "recalled", content: string): Message {
    this.seq++;
    const changed = { ...(this.messages[at] as Message), status, content, changedSeq: this.seq };
    this.messages[at] = changed;
    return changed;
  }

  /** Returns a page as ListMessages does. */
  page(range: { afterSeq?: number | undefined; beforeSeq?: number | undefined }, limit: number): Message[] {
    const { afterSeq, beforeSeq } = range;
    const after = (seq: number) => this.messages.findLastIndex((m) => m.seq <= seq) + 1;
    if (afterSeq !== undefined) return this.messages.slice(after(afterSeq)).slice(0, limit);
    const end = beforeSeq === undefined ? this.messages.length : after(beforeSeq - 1);
    return this.messages.slice(Math.max(0, end - limit), end).reverse();
  }
}

/** parleyError returns an error like those of the SDK. */
export function parleyError(reason: string, more: object = {}): Error {
  return Object.assign(new Error(`server: ${reason}`), { reason, code: 7, field: "", positions: [] }, more);
}

class Queue {
  readonly #events: Event[] = [];
  #taker: { resolve: (e: Event) => void; reject: (e: unknown) => void } | null = null;
  #error: unknown;

  push(event: Event): void {
    const taker = this.#taker;
    this.#taker = null;
    if (taker) taker.resolve(event);
    else this.#events.push(event);
  }

  fail(error: unknown): void {
    this.#error = error;
    this.#taker?.reject(error);
    this.#taker = null;
  }

  next(): Promise<Event> {
    const event = this.#events.shift();
    if (event) return Promise.resolve(event);
    if (this.#error !== undefined) return Promise.reject(this.#error);
    return new Promise((resolve, reject) => {
      this.#taker = { resolve, reject };
    });
  }
}

/**
 * FakeServer is a server for one user's client. It delivers live events; pages and responses arrive
 * at once, or when a test allows it.
 */
export class FakeServer {
  readonly logs = new Map<string, FakeLog>();
  readonly read = new Map<string, number>();
  readonly sent: string[] = [];
  readonly marked: [string, number][] = [];
  readonly asked: { afterSeq?: number | undefined; beforeSeq?: number | undefined }[] = [];
  /** The channels that exist and are not the user's. */
  readonly elsewhere = new Map<string, FakeLog>();
  readonly lookedUp: string[] = [];
  /** The actions that the token allows on all channels. */
  allowed: readonly ChannelAction[] = ["send", "history", "subscribe"];
  typed = 0;
  subscriptions = 0;
  /** Awaited before a page is read, and before it is returned. */
  beforePage: () => Promise<void> = async () => {};
  afterPage: () => Promise<void> = async () => {};
  /** Awaited before a send is stored. May throw. */
  beforeSend: (content: string) => Promise<void> = async () => {};
  beforeEdit: () => Promise<void> = async () => {};
  beforeMark: () => Promise<void> = async () => {};
  /** Called with the channels of a new stream. May throw. */
  admit: (channelIds: readonly string[]) => void = () => {};
  /** Awaited with a channel that is added to a stream. May throw. */
  admitAdded: (channelId: string) => void | Promise<void> = () => {};
  /** True while the subscription is between two streams: added channels begin with the next one. */
  away = false;
  #stream: { queue: Queue; channels: Set<string>; onState: (c: StateChange) => void } | null = null;

  constructor(readonly user: string) {}

  log(id: string): FakeLog {
    let log = this.logs.get(id);
    if (!log) {
      log = new FakeLog(id);
      this.logs.set(id, log);
    }
    return log;
  }

  say(id: string, fromId: string, content: string, clientMsgId = "", type = "text"): Message {
    const message = this.log(id).send(fromId, content, clientMsgId, type);
    const { seq } = message;
    this.tell({ kind: "sent", channelId: id, seq, fromSeq: seq, epoch: "e", message });
    return message;
  }

  change(id: string, at: number, status: "edited" | "recalled", content: string): void {
    const message = this.log(id).change(at, status, content);
    const { changedSeq: seq } = message;
    this.tell({ kind: status, channelId: id, seq, fromSeq: seq, epoch: "e", message });
  }

  tell(event: Event): void {
    if (this.#stream?.channels.has(event.channelId)) this.#stream.queue.push(event);
  }

  state(change: StateChange): void {
    this.#stream?.onState(change);
  }

  /** The channels that the stream follows. */
  get followed(): readonly string[] {
    return [...(this.#stream?.channels ?? [])];
  }

  end(error: unknown): void {
    this.#stream?.queue.fail(error);
  }

  client(): ChatClient {
    return {
      send: async (id, content, { clientMsgId, type }) => {
        await this.beforeSend(content);
        this.sent.push(content);
        const known = this.log(id).messages.find((m) => m.fromId === this.user && m.clientMsgId === clientMsgId);
        const message = known ?? this.say(id, this.user, content, clientMsgId, type);
        const { msgId, seq, count, time } = message;
        return { channelId: id, msgId, seq, count, time, clientMsgId, epoch: "e", duplicate: known !== undefined };
      },
      edit: async (id, msgId, content) => {
        await this.beforeEdit();
        this.change(id, this.#at(id, msgId), "edited", content);
      },
      recall: async (id, msgId) => this.change(id, this.#at(id, msgId), "recalled", ""),
      history: (id, { afterSeq, beforeSeq, limit }) => this.#history(id, { afterSeq, beforeSeq }, limit),
      channels: () => this.#channels(),
      markRead: async (id, seq) => {
        await this.beforeMark();
        this.marked.push([id, seq]);
        return { seq, unread: 0, epoch: "e" };
      },
      typing: async () => {
        this.typed++;
      },
      subscribe: (ids, onState) => this.#subscribe(ids, onState),
      can: (action) => this.allowed.includes(action),
      lookup: async (id) => {
        this.lookedUp.push(id);
        const log = this.logs.get(id) ?? this.elsewhere.get(id);
        return log ? { kind: "open", count: log.messages.length } : { kind: "free" };
      },
      presence: () => null,
      close: () => {},
    };
  }

  #at(id: string, msgId: string): number {
    return this.log(id).messages.findIndex((m) => m.msgId === msgId);
  }

  async *#history(id: string, range: { afterSeq?: number | undefined; beforeSeq?: number | undefined }, limit: number) {
    this.asked.push(range);
    await this.beforePage();
    const page = this.log(id).page(range, limit);
    await this.afterPage();
    yield* page;
  }

  async *#channels(): AsyncGenerator<UserChannel> {
    for (const log of this.logs.values()) {
      const readSeq = this.read.get(log.channelId) ?? 0;
      yield {
        channel: {
          channelId: log.channelId,
          membersOnly: false,
          createdBy: "",
          headSeq: log.seq,
          count: log.messages.length,
          oldestSeq: 1,
          expiredCount: 0,
          epoch: "e",
          etag: "",
        },
        readSeq,
        unread: log.messages.filter((m) => m.seq > readSeq).length,
        ...(log.messages.length > 0 && { lastMessage: log.messages.at(-1) as Message }),
      };
    }
  }

  #subscribe(ids: readonly string[], onState: (change: StateChange) => void) {
    this.subscriptions++;
    const stream = { queue: new Queue(), channels: new Set<string>(), onState };
    this.#stream = stream;
    const begin = (id: string) => {
      stream.channels.add(id);
      const { seq, messages } = this.log(id);
      const state = {
        epoch: "e",
        oldestSeq: 1,
        headSeq: seq,
        count: messages.length,
        expiredCount: 0,
        recovered: false,
      };
      stream.queue.push({ kind: "channel_state", channelId: id, seq, epoch: "e", state });
    };
    try {
      this.admit(ids);
      onState({ state: "live" });
      for (const id of ids) begin(id);
    } catch (error) {
      stream.queue.fail(error);
    }
    return {
      next: () => stream.queue.next(),
      add: async (id: string) => {
        await this.admitAdded(id);
        if (!this.away) begin(id);
      },
      remove: async (id: string) => {
        stream.channels.delete(id);
      },
      close: () => stream.queue.fail(new Error("closed")),
    };
  }
}

/** FakeWorld is an environment whose clock, frames and storage the test controls. */
export class FakeWorld implements Environment {
  time = 1_000_000;
  frames = 0;
  readonly readElsewhere: [string, number][] = [];
  readonly #frames: (() => void)[] = [];
  #timers: { at: number; callback: () => void }[] = [];

  constructor(readonly storage: Environment["storage"] = new FakeStorage()) {}

  now(): number {
    return this.time;
  }

  frame(callback: () => void): void {
    this.#frames.push(callback);
  }

  after(ms: number, callback: () => void): () => void {
    const timer = { at: this.time + ms, callback };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((t) => t !== timer);
    };
  }

  /** The number of timers that are set. */
  get timers(): number {
    return this.#timers.length;
  }

  read(channelId: string, seq: number): void {
    this.readElsewhere.push([channelId, seq]);
  }

  /** Runs all pending work and draws frames. */
  async settle(): Promise<void> {
    for (let i = 0; i < 3; i++) {
      await new Promise((resolve) => setImmediate(resolve));
      for (const callback of this.#frames.splice(0)) callback();
    }
  }

  /** Advances the clock by ms and runs due timers. */
  async pass(ms: number): Promise<void> {
    this.time += ms;
    const due = this.#timers.filter((t) => t.at <= this.time);
    this.#timers = this.#timers.filter((t) => t.at > this.time);
    for (const { callback } of due) callback();
    await this.settle();
  }
}

export class FakeStorage {
  readonly #values = new Map<string, string>();

  get length(): number {
    return this.#values.size;
  }

  key(index: number): string | null {
    return [...this.#values.keys()][index] ?? null;
  }

  getItem(key: string): string | null {
    return this.#values.get(key) ?? null;
  }

  setItem(key: string, value: string): void {
    this.#values.set(key, value);
  }

  removeItem(key: string): void {
    this.#values.delete(key);
  }
}

/** setup creates a chat of one user with its own server, on a storage that may be shared. */
export function setup(storage = new FakeStorage(), me = "me") {
  const server = new FakeServer(me);
  const world = new FakeWorld(storage);
  const chat = new Chat(server.client(), me, world);
  return { server, world, chat, storage };
}

/** texts returns the texts of the open channel's messages. */
export function texts(chat: Chat): string[] {
  return (chat.open.value?.view.value.chunks ?? []).flatMap((c) => c.messages.map((m) => m.content));
}

/** gate returns two functions: wait returns a promise, which open resolves. */
export function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, wait: () => opened };
}

import type {
  AssistantClient,
  Environment,
  Event,
  Message,
  Receipt,
  SessionInfo,
  StateChange,
} from "../../src/assistant/model/types";

/** parleyError returns an error like those of the SDK. */
export function parleyError(reason: string, more: object = {}): Error {
  return Object.assign(new Error(`server: ${reason}`), { reason, code: 9, field: "", positions: [], ...more });
}

/** FakeClient is a server for one user's client. Tests append what others do. */
export class FakeClient implements AssistantClient {
  readonly logs = new Map<string, Message[]>();
  readonly titles = new Map<string, string>();
  readonly calls: string[] = [];
  readonly followed = new Set<string>();
  /** Returns the error of a call, or undefined. */
  fault: (call: string) => Error | undefined = () => undefined;
  /** If set, calls wait for it. */
  held: Promise<void> | undefined;
  rights: readonly string[] = ["append", "history", "subscribe"];
  onState: (change: StateChange) => void = () => {};
  closed = false;
  #seq = 0;
  #events: Event[] = [];
  #taker: ((event: Event) => void) | undefined;
  #fail: ((error: unknown) => void) | undefined;

  async #call(call: string, signal?: AbortSignal): Promise<void> {
    this.calls.push(call);
    await this.held;
    signal?.throwIfAborted();
    const error = this.fault(call);
    if (error) throw error;
  }

  /** Appends a message of anyone, and sends its event to a follower. */
  post(id: string, type: string, content: string, more: Partial<Message> = {}): Message {
    const log = this.logs.get(id) ?? [];
    this.logs.set(id, log);
    const seq = ++this.#seq;
    const message: Message = {
      msgId: `m${seq}`,
      channelId: `~${id}`,
      seq,
      count: log.length + 1,
      fromId: type === "user" ? "ann" : "bot",
      type,
      content,
      metadata: {},
      clientMsgId: "",
      time: new Date(seq * 1_000),
      status: "sent",
      changedSeq: seq,
      ...more,
    };
    log.push(message);
    this.entry("sent", message);
    return message;
  }

  /** Changes a message, and sends its event to a follower. */
  change(message: Message, kind: "edited" | "recalled" | "closed", changes: Partial<Message>): Message {
    const log = this.logs.get(message.channelId.slice(1)) ?? [];
    const changed = { ...message, ...changes, changedSeq: ++this.#seq };
    log[log.findIndex((m) => m.msgId === message.msgId)] = changed;
    this.entry(kind, changed);
    return changed;
  }

  entry(kind: "sent" | "edited" | "recalled" | "closed", message: Message): void {
    this.event({ kind, channelId: message.channelId, seq: message.changedSeq, fromSeq: 0, epoch: "e", message });
  }

  delta(message: Message, offset: number, text: string): void {
    this.event({ kind: "delta", channelId: message.channelId, seq: 0, epoch: "e", msgId: message.msgId, offset, text });
  }

  event(event: Event): void {
    if (!this.followed.has(event.channelId.slice(1)) && event.kind !== "lost") return;
    if (this.#taker) this.#taker(event);
    else this.#events.push(event);
    this.#taker = undefined;
  }

  /** Ends the subscription with an error. */
  end(error: unknown): void {
    this.#fail?.(error);
  }

  async *sessions(): AsyncIterable<SessionInfo> {
    await this.#call("sessions");
    const all = [...this.logs].map(([sessionId, log]) => ({
      sessionId,
      channelId: `~${sessionId}`,
      ownerId: "ann",
      title: this.titles.get(sessionId) ?? "",
      createTime: new Date(0),
      activeTime: log.at(-1)?.time ?? new Date(0),
      headSeq: 0,
      count: log.length,
      readSeq: 0,
      unread: 0,
      epoch: "e",
    }));
    yield* all.sort((a, b) => b.activeTime.getTime() - a.activeTime.getTime());
  }

  async append(
    id: string,
    content: string,
    { clientMsgId, title, signal }: { clientMsgId: string; title: string; signal: AbortSignal },
  ): Promise<Receipt> {
    await this.#call(`append ${id} ${content}`, signal);
    const known = this.logs.get(id)?.find((m) => m.clientMsgId === clientMsgId);
    if (!this.logs.has(id)) this.titles.set(id, title);
    const { msgId, channelId, seq, count, time } = known ?? this.post(id, "user", content, { clientMsgId });
    return { msgId, channelId, seq, count, time, clientMsgId, epoch: "e", duplicate: known !== undefined };
  }

  async *messages(id: string, { beforeSeq, limit }: { beforeSeq?: number; limit: number }): AsyncIterable<Message> {
    await this.#call(`messages ${id} ${beforeSeq ?? ""}`);
    const log = this.logs.get(id);
    if (!log) throw parleyError("CHANNEL_NOT_FOUND");
    yield* log
      .filter((m) => m.seq < (beforeSeq ?? Number.POSITIVE_INFINITY))
      .slice(-limit)
      .reverse();
  }

  async edit(id: string, msgId: string, content: string): Promise<void> {
    await this.#call(`edit ${id} ${msgId} ${content}`);
    const message = this.logs.get(id)?.find((m) => m.msgId === msgId);
    if (message) this.change(message, "edited", { content, status: "edited" });
  }

  async recall(id: string, msgId: string): Promise<void> {
    await this.#call(`recall ${id} ${msgId}`);
    const message = this.logs.get(id)?.find((m) => m.msgId === msgId);
    if (message) this.change(message, "recalled", { content: "", status: "recalled" });
  }

  cancel = (id: string, msgId: string) => this.#call(`cancel ${id} ${msgId}`);
  markRead = (id: string, seq: number) => this.#call(`markRead ${id} ${seq}`);
  rename = (id: string, title: string) => this.#call(`rename ${id} ${title}`);
  remove = (id: string) => this.#call(`remove ${id}`);

  subscribe(onState: (change: StateChange) => void) {
    this.onState = onState;
    return {
      next: () =>
        new Promise<Event>((resolve, reject) => {
          const event = this.#events.shift();
          if (event) resolve(event);
          else this.#taker = resolve;
          this.#fail = reject;
        }),
      add: async (id: string) => {
        await this.#call(`add ${id}`);
        if (!this.logs.has(id)) throw parleyError("CHANNEL_NOT_FOUND");
        this.followed.add(id);
        const state = { epoch: "e", oldestSeq: 1, headSeq: 0, count: 0, expiredCount: 0, recovered: false };
        this.event({ kind: "channel_state", channelId: `~${id}`, seq: 0, epoch: "e", state });
      },
      remove: async (id: string) => {
        await this.#call(`unfollow ${id}`);
        this.followed.delete(id);
      },
      close: () => {},
    };
  }

  can = (action: string) => this.rights.includes(action);

  close(): void {
    this.closed = true;
  }
}

/** FakeEnvironment is an environment whose time stands still. Frames are drawn at once. */
export class FakeEnvironment implements Environment {
  time = 1_000_000;
  changes = 0;
  readonly kept = new Map<string, string>();
  readonly timers: (() => void)[] = [];
  #ids = 0;

  readonly storage = {
    getItem: (key: string) => this.kept.get(key) ?? null,
    setItem: (key: string, value: string) => void this.kept.set(key, value),
    removeItem: (key: string) => void this.kept.delete(key),
  };

  now = () => this.time;
  after = (_: number, callback: () => void) => {
    this.timers.push(callback);
    return () => {};
  };
  frame = (callback: () => void) => callback();
  changed = () => void this.changes++;
  id = () => `id-${++this.#ids}`;
}

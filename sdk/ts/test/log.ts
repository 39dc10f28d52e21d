import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import * as channel from "@parleyhq/api/parley/v1/channel_pb.js";
import * as pb from "@parleyhq/api/parley/v1/message_pb.js";
import * as sub from "@parleyhq/api/parley/v1/subscription_pb.js";

/** Entry is an entry of a log: a message and the change of it. */
interface Entry {
  message: channel.ChannelMessage;
  kind: "sent" | "edited" | "recalled" | "closed";
}

/** ChannelLog is one channel of the fake server. */
export class ChannelLog {
  readonly id: string;
  createdBy = "";
  /** The idempotency key with which the channel was created. */
  createKey = "";
  retention: channel.ChannelRetention | undefined;
  epoch = "epoch-1";
  /** The oldest entry that can be read. */
  oldest = 1;
  entries: Entry[] = [];
  /** The members. Undefined for an open channel. */
  members: Set<string> | undefined;
  /** How many more times streams skip an entry, as a broken server would, by seq. */
  readonly skip = new Map<number, number>();
  /** Entries that streams never send: the next event covers them. */
  readonly covered = new Set<number>();
  readonly #byClient = new Map<string, number>();

  constructor(id: string) {
    this.id = id;
  }

  get head(): number {
    return this.entries.length;
  }

  get count(): number {
    return this.entries.filter((e) => e.kind === "sent").length;
  }

  get messages(): channel.ChannelMessage[] {
    return this.entries.filter((e) => e.kind === "sent").map((e) => e.message);
  }

  admits(user: string): boolean {
    return this.members?.has(user) ?? true;
  }

  /** knows reports whether append has added an entry with this key. */
  knows(key: string): boolean {
    return this.#byClient.has(key);
  }

  /** append adds an entry, or returns the one with the same key. */
  append(key: string, kind: Entry["kind"], message: channel.ChannelMessage): { seq: number; duplicate: boolean } {
    const known = this.#byClient.get(key);
    if (known !== undefined) {
      return { seq: known, duplicate: true };
    }
    this.entries.push({ message, kind });
    this.#byClient.set(key, this.head);
    message.changedSeq = BigInt(this.head);
    return { seq: this.head, duplicate: false };
  }

  send(from: string, req: MessageInitShape<typeof pb.SendMessageRequestSchema>): pb.SendMessageResponse {
    const fresh = create(channel.ChannelMessageSchema, {
      msgId: `${this.id}-${this.head + 1}`,
      channelId: this.id,
      seq: BigInt(this.head + 1),
      count: BigInt(this.count + 1),
      fromId: req.fromId || from,
      msgType: req.msgType || "text",
      content: req.content,
      metadata: { ...req.metadata },
      clientMsgId: req.clientMsgId,
      msgTime: timestampFromMs(Date.now()),
      status: channel.MessageStatus.SENT,
    });
    const { seq, duplicate } = this.append(`${from} ${req.clientMsgId}`, "sent", fresh);
    const message = this.entries[seq - 1]?.message ?? fresh;
    return create(pb.SendMessageResponseSchema, {
      msgId: message.msgId,
      seq: BigInt(seq),
      count: message.count,
      msgTime: message.msgTime,
      clientMsgId: message.clientMsgId,
      epoch: this.epoch,
      duplicate,
    });
  }

  page(req: pb.ListMessagesRequest): pb.ListMessagesResponse {
    const after = req.afterSeq ?? 0n;
    const before = req.beforeSeq ?? BigInt(this.head + 1);
    let found = this.messages.filter((m) => m.seq > after && m.seq < before);
    if (req.afterSeq === undefined) {
      found = found.reverse();
    }
    const from = Number(req.pageToken || 0);
    const size = req.pageSize || 50;
    return create(pb.ListMessagesResponseSchema, {
      messages: found.slice(from, from + size),
      nextPageToken: from + size < found.length ? String(from + size) : "",
      headSeq: BigInt(this.head),
      epoch: this.epoch,
      oldestSeq: BigInt(this.oldest),
    });
  }

  /** The number of messages before the oldest entry. */
  get expired(): number {
    return this.entries.slice(0, this.oldest - 1).filter((e) => e.kind === "sent").length;
  }

  info(): MessageInitShape<typeof channel.ChannelInfoSchema> {
    return {
      channelId: this.id,
      membersOnly: this.members !== undefined,
      createdBy: this.createdBy,
      headSeq: BigInt(this.head),
      count: BigInt(this.count),
      oldestSeq: BigInt(this.oldest),
      expiredCount: BigInt(this.expired),
      epoch: this.epoch,
      etag: "etag-1",
      retention: this.retention,
    };
  }

  state(recovered: boolean, seq: number): sub.ChannelEvent {
    const state = create(sub.ChannelStateSchema, {
      epoch: this.epoch,
      oldestSeq: BigInt(this.oldest),
      headSeq: BigInt(this.head),
      count: BigInt(this.count),
      expiredCount: BigInt(this.expired),
      recovered,
    });
    return create(sub.ChannelEventSchema, {
      channelId: this.id,
      seq: BigInt(seq),
      event: { case: "state", value: state },
    });
  }

  event(seq: number): sub.ChannelEvent {
    const entry = this.entries[seq - 1] as Entry;
    let from = seq;
    while (this.covered.has(from - 1)) {
      from--;
    }
    return create(sub.ChannelEventSchema, {
      channelId: this.id,
      seq: BigInt(seq),
      fromSeq: BigInt(from),
      event: { case: entry.kind, value: entry.message },
    });
  }
}

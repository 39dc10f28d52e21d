import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import * as pb from "@parleyhq/api/parley/v1/message_pb.js";
import { ParleyError } from "./error.js";
import type { Channel, Member, Message, MyChannel } from "./message.js";

/** integer makes a number of a 64-bit integer, and refuses what a number can't hold exactly. */
export function integer(value: bigint): number {
  const n = Number(value);
  if (!Number.isSafeInteger(n)) {
    throw new ParleyError({
      code: Code.OutOfRange,
      message: `${value} from the server is beyond what a number can hold`,
    });
  }
  return n;
}

/** milliseconds gives a duration's length; 0 for none. */
export function milliseconds(duration: Duration | undefined): number {
  return duration === undefined ? 0 : Number(duration.seconds) * 1_000 + duration.nanos / 1e6;
}

/** named gives the name of an enum's value: empty for 0, `<unknown>_7` for 7 if that is not known. */
export function named(names: Record<number, string>, value: number, unknown: string): string {
  return value === 0 ? "" : (names[value] ?? `${unknown}_${value}`);
}

/** date gives a point in time; the epoch's start for none. */
export function date(at: Timestamp | undefined): Date {
  return at === undefined ? new Date(0) : timestampDate(at);
}

/** toMessage converts a message as the server tells it. */
export function toMessage(m: pb.Message): Message {
  return {
    msgId: m.msgId,
    channelId: m.channelId,
    seq: integer(m.seq),
    count: integer(m.count),
    fromId: m.fromId,
    type: m.msgType,
    content: m.content,
    metadata: m.metadata,
    clientMsgId: m.clientMsgId,
    time: date(m.msgTime),
    status: status(m.status),
    changedSeq: integer(m.changedSeq),
  };
}

function status(s: pb.MessageStatus): Message["status"] {
  switch (s) {
    case pb.MessageStatus.RECALLED:
      return "recalled";
    case pb.MessageStatus.EDITED:
      return "edited";
    default:
      return "sent";
  }
}

/** toChannel converts a channel as the server tells it. */
export function toChannel(c: pb.Channel | undefined): Channel {
  return {
    channelId: c?.channelId ?? "",
    membersOnly: c?.membersOnly ?? false,
    createdBy: c?.createdBy ?? "",
    createTime: c?.createTime === undefined ? undefined : timestampDate(c.createTime),
    headSeq: integer(c?.headSeq ?? 0n),
    count: integer(c?.count ?? 0n),
  };
}

/** toMyChannel converts a channel of the caller's. */
export function toMyChannel(c: pb.MyChannel): MyChannel {
  return {
    channel: toChannel(c.channel),
    readSeq: integer(c.readSeq),
    unread: integer(c.unread),
    lastMessage: c.lastMessage === undefined ? undefined : toMessage(c.lastMessage),
  };
}

/** toMember converts a member of a channel. */
export function toMember(m: pb.Member): Member {
  return { userId: m.userId, joinTime: date(m.joinTime), readSeq: integer(m.readSeq) };
}

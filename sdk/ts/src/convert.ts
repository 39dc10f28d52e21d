import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import * as pb from "@parleyhq/api/parley/v1/channel_pb.js";
import { ParleyError } from "./error.js";
import type { Channel, Member, MemberRole, Message, Retention, UserChannel } from "./message.js";

/**
 * integer converts a 64-bit integer to a number. It throws OutOfRange for one that a number cannot
 * hold exactly.
 */
export function integer(value: bigint): number {
  const n = Number(value);
  if (!Number.isSafeInteger(n)) {
    throw new ParleyError({
      code: Code.OutOfRange,
      message: `${value} from the server is larger than Number.MAX_SAFE_INTEGER`,
    });
  }
  return n;
}

/** milliseconds returns a duration in milliseconds. It returns 0 for undefined. */
export function milliseconds(duration: Duration | undefined): number {
  return duration === undefined ? 0 : Number(duration.seconds) * 1_000 + duration.nanos / 1e6;
}

/**
 * named returns the name of an enum value: an empty string for 0, and `<unknown>_7` for a 7 that
 * has no name.
 */
export function named(names: Record<number, string>, value: number, unknown: string): string {
  return value === 0 ? "" : (names[value] ?? `${unknown}_${value}`);
}

/** date converts a timestamp. It returns the Unix epoch for undefined. */
export function date(at: Timestamp | undefined): Date {
  return at === undefined ? new Date(0) : timestampDate(at);
}

/** toMessage converts a message. */
export function toMessage(m: pb.ChannelMessage): Message {
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
    case pb.MessageStatus.OPEN:
      return "open";
    case pb.MessageStatus.CANCELLED:
      return "cancelled";
    case pb.MessageStatus.FAILED:
      return "failed";
    default:
      return "sent";
  }
}

/** toChannel converts a channel. */
export function toChannel(c: pb.ChannelInfo | undefined): Channel {
  return {
    channelId: c?.channelId ?? "",
    membersOnly: c?.membersOnly ?? false,
    createdBy: c?.createdBy ?? "",
    createTime: c?.createTime === undefined ? undefined : timestampDate(c.createTime),
    headSeq: integer(c?.headSeq ?? 0n),
    count: integer(c?.count ?? 0n),
    oldestSeq: integer(c?.oldestSeq ?? 0n),
    expiredCount: integer(c?.expiredCount ?? 0n),
    epoch: c?.epoch ?? "",
    etag: c?.etag ?? "",
    retention: c?.retention === undefined ? undefined : toRetention(c.retention),
  };
}

function toRetention(r: pb.ChannelRetention): Retention {
  return {
    maxAge: milliseconds(r.maxAge),
    maxMessages: integer(r.maxMessages),
    maxBytes: integer(r.maxBytes),
  };
}

/** toUserChannel converts a channel of the caller. */
export function toUserChannel(c: pb.UserChannel): UserChannel {
  return {
    channel: toChannel(c.channel),
    readSeq: integer(c.readSeq),
    unread: integer(c.unread),
    lastMessage: c.lastMessage === undefined ? undefined : toMessage(c.lastMessage),
  };
}

/** toMember converts a member of a channel. epoch is that of the member's read cursor. */
export function toMember(m: pb.ChannelMember, epoch: string): Member {
  return {
    userId: m.userId,
    role: named(pb.MemberRole, m.role, "ROLE") as MemberRole,
    joinTime: date(m.joinTime),
    readSeq: integer(m.readSeq),
    epoch,
  };
}

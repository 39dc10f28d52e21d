import type { MemberRole as MemberRoles } from "@parleyhq/api/parley/v1/channel_pb.js";

/**
 * Message is a message of a channel in its current state. Of two copies, the one with the higher
 * changedSeq is newer.
 */
export interface Message {
  /** The server's id of the message. It is unique across all channels. */
  msgId: string;
  channelId: string;
  /**
   * The message's position in the log of its channel. Positions start at 1, have no gaps and are
   * never reused. Edits and recalls have positions of their own.
   */
  seq: number;
  /**
   * The number of messages in the log up to and including this one. The count of the newest message
   * minus that of the last read one is the number of unread messages.
   */
  count: number;
  /** The sender's user id. */
  fromId: string;
  /** The kind of the content. The application defines it; the default is `text`. */
  type: string;
  content: string;
  metadata: Record<string, string>;
  clientMsgId: string;
  /** When the server accepted the message. */
  time: Date;
  /**
   * A recalled message is a tombstone without content and metadata. It keeps its position and is
   * still included in counts. The content of an open message of a session is still being generated.
   * When it is closed, it becomes `sent`, or `cancelled` or `failed` if the content is not
   * complete.
   */
  status: "sent" | "edited" | "recalled" | "open" | "cancelled" | "failed";
  /**
   * The seq of the last entry that changed the message. It is the message's own seq if no entry
   * did.
   */
  changedSeq: number;
}

/** StoredMessage is a message and the epoch of its seqs. */
export interface StoredMessage extends Message {
  epoch: string;
}

/** Receipt is the result of a send. */
export interface Receipt {
  channelId: string;
  msgId: string;
  /** The message's position in the log. */
  seq: number;
  /** The number of messages in the log up to and including this one. */
  count: number;
  /** When the server accepted the message. */
  time: Date;
  /** The id that makes the call idempotent. */
  clientMsgId: string;
  /** The epoch of seq. Positions can be compared only within one epoch. */
  epoch: string;
  /** True if an earlier attempt or an earlier call with this id stored the message. */
  duplicate: boolean;
}

/** ChangeReceipt is the result of an edit or a recall. */
export interface ChangeReceipt {
  channelId: string;
  /** The id of the message that was edited or recalled. */
  msgId: string;
  /**
   * The message in its current state, which includes the change. After a recall it is the
   * tombstone. Undefined if the message has expired, as it may have when a change is repeated.
   */
  message: Message | undefined;
  /** The position in the log of the edit, or of the recall that removed the content. */
  seq: number;
  /** When the server appended that entry. */
  time: Date;
  /** The id that makes the call idempotent. */
  clientMsgId: string;
  /** The epoch of seq and of the message's seqs. */
  epoch: string;
  /**
   * True if an earlier attempt or an earlier call with this id stored the edit, or if the message
   * was recalled before this call.
   */
  duplicate: boolean;
}

/** Outgoing is a message to send. */
export interface Outgoing {
  channelId: string;
  /** UTF-8 text without NUL, 1 to 65,536 bytes. */
  content: string;
  /**
   * Makes the send idempotent. It is unique within channel and sender. The default is a new UUIDv7.
   */
  clientMsgId?: string;
  /** The default is `text`. */
  type?: string;
  /** Up to 16 short strings. The application defines them. */
  metadata?: Record<string, string>;
  /** The sender, if it is not the token's subject. Requires the action `send_as`. */
  sender?: string;
}

/** SendResult is the result of one message of a batch. */
export type SendResult =
  /** The message is stored. */
  | { receipt: Receipt; error?: undefined }
  /**
   * The message is not stored, or the outcome is unknown. The error is a ParleyError, or an
   * InterruptedError if a signal or the time limit ended the call.
   */
  | { receipt?: undefined; error: Error };

/** Channel describes a channel. */
export interface Channel {
  channelId: string;
  /** True if only members and holders of `manage` can use the channel. */
  membersOnly: boolean;
  /** The user that created the channel. Empty if a first send created it. */
  createdBy: string;
  createTime?: Date;
  /** The last entry of the log. 0 if the log has none. */
  headSeq: number;
  /** The number of messages that the log ever had up to and including headSeq. */
  count: number;
  /** The oldest entry that can be read. It is headSeq + 1 if the log holds no entry. */
  oldestSeq: number;
  /** The number of messages before oldestSeq. They are included in count but cannot be read. */
  expiredCount: number;
  /** The epoch of the seqs above. Positions can be compared only within one epoch. */
  epoch: string;
  /** An opaque value that changes whenever the channel's settings change. */
  etag: string;
  /** The channel's own policy; undefined if the server's default applies. */
  retention?: Retention;
}

/**
 * Retention is a policy for how long the messages of a channel are kept. Messages expire, the
 * oldest first, while they exceed any of its limits. A limit that is not set, or 0, does not apply.
 */
export interface Retention {
  /** The age at which messages expire, in milliseconds: at least 60,000. */
  maxAge?: number;
  /** The number of messages that are kept. */
  maxMessages?: number;
  /**
   * The size of the messages and edits that are kept, in bytes. Each counts 256 bytes besides its
   * text and metadata.
   */
  maxBytes?: number;
}

/** CreatedChannel is the result of createChannel. */
export interface CreatedChannel extends Channel {
  /**
   * True if an earlier attempt or an earlier call with this idempotency key created the channel.
   */
  duplicate: boolean;
}

/** UserChannel is a channel with the caller's own state in it. */
export interface UserChannel {
  channel: Channel;
  /** The caller's read cursor: a seq of the epoch channel.epoch. 0 if there is none. */
  readSeq: number;
  /**
   * The number of messages after the read cursor. Edits and recalls do not count; recalled messages
   * do.
   */
  unread: number;
  /**
   * The newest message in its current state, which can be a tombstone. Undefined if there is none,
   * or if the token cannot read the channel's history.
   */
  lastMessage?: Message;
}

/**
 * MemberRole is the role of a member: the name in channel.proto without its prefix, or `ROLE_7` for
 * a number that this SDK does not know. It is empty if the server sent none.
 */
export type MemberRole = "" | Exclude<keyof typeof MemberRoles, "UNSPECIFIED"> | `ROLE_${number}`;

/** Member is a user's membership of a channel. */
export interface Member {
  userId: string;
  role: MemberRole;
  joinTime: Date;
  /**
   * The user's read cursor: the highest seq that the user marked as read or sent. 0 if there is
   * none.
   */
  readSeq: number;
  /** The epoch of readSeq. */
  epoch: string;
}

/**
 * NewMember is a user to add to a channel: a user id, or a user id with a role. The default role is
 * `MEMBER`.
 */
export type NewMember = string | { userId: string; role?: Exclude<keyof typeof MemberRoles, "UNSPECIFIED"> };

/** ReadCursor is the caller's read cursor of a channel. */
export interface ReadCursor {
  /** The highest seq that the caller marked as read or sent. */
  seq: number;
  /** The number of unread messages: those after seq. */
  unread: number;
  /** The epoch of seq. */
  epoch: string;
}

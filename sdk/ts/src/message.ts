/** Message is a message of a channel, as it is now. Where two copies meet, the one with the higher changedSeq wins. */
export interface Message {
  /** The server's id, unique everywhere. */
  msgId: string;
  channelId: string;
  /** The place in the channel's log: dense, from 1, never reused. Edits and recalls have places of their own. */
  seq: number;
  /** How many messages the log holds up to and with this one. Unread is the difference of two counts. */
  count: number;
  /** The user who sent it. */
  fromId: string;
  /** The kind of content, free for the application to use; `text` unless the sender said otherwise. */
  type: string;
  content: string;
  metadata: Record<string, string>;
  clientMsgId: string;
  /** When the server took it. */
  time: Date;
  /** A recalled message is a tombstone without content and metadata, which keeps its place and still counts. */
  status: "sent" | "edited" | "recalled";
  /** The seq of the last entry that changed it; its own seq if none has. */
  changedSeq: number;
}

/** Receipt says where a channel's log holds what was sent, edited or recalled. */
export interface Receipt {
  channelId: string;
  /** The message's; for an edit and a recall, that of the message changed. */
  msgId: string;
  /** The place in the log of the message, of the edit or of the recall. */
  seq: number;
  /** How many messages the log holds up to and with a message; 0 for an edit and a recall. */
  count: number;
  /** The server's clock. */
  time: Date;
  /** The id that made the call idempotent. */
  clientMsgId: string;
  epoch: string;
  /** True if an earlier call with this id had stored it, for instance one whose answer was lost. */
  duplicate: boolean;
}

/** Outgoing is a message to be sent. */
export interface Outgoing {
  channelId: string;
  /** 1 to 65,536 bytes of UTF-8 without NUL. */
  content: string;
  /** Makes the send idempotent for ever, unique within channel and sender. Where it is absent one is minted. */
  clientMsgId?: string;
  /** `text` where it is absent. */
  type?: string;
  /** Up to 16 short strings for the application. */
  metadata?: Record<string, string>;
  /** Another sender than the token's subject, which wants the capability `send_as`. */
  sender?: string;
}

/** SendResult is what became of one message of a batch. */
export type SendResult =
  /** The message is stored. */
  | { receipt: Receipt; error?: undefined }
  /** It is not, or that is not known: a ParleyError, or an InterruptedError where a signal ended the call. */
  | { receipt?: undefined; error: Error };

/** Channel is what is told of a channel. */
export interface Channel {
  channelId: string;
  /** Whether only members may use it; it never changes. */
  membersOnly: boolean;
  /** Who made it; empty for one that a first send made. */
  createdBy: string;
  createTime?: Date;
  /** The log's last entry. */
  headSeq: number;
  /** How many messages the log holds up to and with that. */
  count: number;
}

/** MyChannel is a channel as it is to the caller. */
export interface MyChannel {
  channel: Channel;
  /** How far the caller has read. */
  readSeq: number;
  /** How many messages lie after that; edits and recalls do not count, recalled messages do. */
  unread: number;
  /** The newest message as it is now; absent while there is none, and for a token that may not read the history. */
  lastMessage?: Message;
}

/** Member is one user of a channel. */
export interface Member {
  userId: string;
  joinTime: Date;
  /** How far the user has read: the highest seq that he marked or sent; 0 for nothing. */
  readSeq: number;
}

/** ReadCursor is how far the caller has read a channel. */
export interface ReadCursor {
  /** The highest place that was marked or sent. */
  seq: number;
  /** How many messages lie after it. */
  unread: number;
}

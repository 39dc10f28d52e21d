import type { GapReason as GapReasons, LostReason as LostReasons } from "@parleyhq/api/parley/v1/subscription_pb.js";
import type { Message } from "./message.js";

/** ChannelState describes a channel's log when its events begin. */
export interface ChannelState {
  epoch: string;
  /** The oldest entry that can be read. It is headSeq + 1 if the log holds no entry. */
  oldestSeq: number;
  /** The last entry of the log. 0 if the log has none. */
  headSeq: number;
  /** The number of messages that the log ever had up to and including headSeq. */
  count: number;
  /** The number of messages before oldestSeq. They are included in count but cannot be read. */
  expiredCount: number;
  /**
   * True if all entries after the client's position follow. False for a live-only subscription, and
   * if a gap follows.
   */
  recovered: boolean;
}

/**
 * GapReason is why entries cannot be sent: the name in subscription.proto without its prefix, or
 * `REASON_7` for a number that this SDK does not know. It is empty if the server skipped entries
 * three times in a row.
 */
export type GapReason = "" | Exclude<keyof typeof GapReasons, "UNSPECIFIED"> | `REASON_${number}`;

/**
 * LostReason is why a subscription no longer follows a channel: the name in subscription.proto
 * without its prefix, or `REASON_7` for a number that this SDK does not know.
 */
export type LostReason = "" | Exclude<keyof typeof LostReasons, "UNSPECIFIED"> | `REASON_${number}`;

/** Gap is a range of entries that is missing from a channel's events. */
export interface Gap {
  /**
   * The seq of the last entry before the gap. Events up to it stay valid, except with the reasons
   * EPOCH_CHANGED and AHEAD_OF_LOG.
   */
  afterSeq: number;
  /**
   * The last missing entry. The events continue after it. It can be lower than afterSeq with the
   * reasons EPOCH_CHANGED and AHEAD_OF_LOG.
   */
  toSeq: number;
  /** The epoch of toSeq and of all later events. */
  epoch: string;
  reason: GapReason;
}

interface Common {
  channelId: string;
  /**
   * For `sent`, `edited`, `recalled` and `closed`: the last entry of the log that the event covers.
   * For `channel_state` and `gap`: the position after which the channel's events continue. For
   * `lost`: the position of the channel's last event before the loss. 0 for `typing` and `delta`.
   */
  seq: number;
  epoch: string;
}

/**
 * EntryEvent is a new message, or a message after an edit, a recall, or the close of an open
 * message of a session. During a replay, `sent` has the message in its current state.
 */
export interface EntryEvent extends Common {
  kind: "sent" | "edited" | "recalled" | "closed";
  /**
   * The first entry that the event covers. The entries from fromSeq to seq have no other event. It
   * can be lower than the seq of an earlier event. It can also be higher than that plus 1: the
   * entries between have no event, because they are edits that later entries replaced, or changes
   * of expired messages.
   */
  fromSeq: number;
  message: Message;
}

/** StateEvent is the first event of a channel on a stream. It is repeated after each reconnect. */
export interface StateEvent extends Common {
  kind: "channel_state";
  state: ChannelState;
}

/**
 * GapEvent reports that entries cannot be sent. The subscription continues after them. Load the
 * channel with history.
 */
export interface GapEvent extends Common {
  kind: "gap";
  gap: Gap;
}

/**
 * LostEvent is the last event of a channel: the channel is members-only, and the user is no longer
 * a member, or a new token no longer allows to subscribe to it. The subscription continues for the
 * other channels. To follow the channel again, add it.
 */
export interface LostEvent extends Common {
  kind: "lost";
  reason: LostReason;
}

/** TypingEvent reports that a user is typing. Show it for 6 s. It has no position in the log. */
export interface TypingEvent extends Common {
  kind: "typing";
  userId: string;
}

/**
 * DeltaEvent is a piece of the text of an open message of a session: keep the first offset bytes of
 * the text so far and append text. Ignore it for a message that is not known as open, unless its
 * offset is 0. OpenTexts does this. The final content is that of the event `closed`. A delta has no
 * position in the log, and a new stream sends each text again from its start.
 */
export interface DeltaEvent extends Common {
  kind: "delta";
  msgId: string;
  /** The number of bytes in UTF-8 before text. 0 starts the text anew. */
  offset: number;
  text: string;
}

/**
 * Event is an event of a channel. The events of one channel are delivered in the order of its log,
 * each entry once.
 */
export type Event = EntryEvent | StateEvent | GapEvent | LostEvent | TypingEvent | DeltaEvent;

/**
 * State is the state of a subscription: `connecting` until a stream's first frame, `live` while the
 * stream is open, `waiting` between two streams, `ended` permanently.
 */
export type State = "connecting" | "live" | "waiting" | "ended";

/** StateChange is a subscription's new state. */
export interface StateChange {
  state: State;
  /**
   * For `waiting`: why the last stream ended, a ParleyError. For `ended`: why the subscription
   * ended. Undefined after the server asked to reconnect.
   */
  error?: Error;
  /** For `waiting`: the longest wait before the next stream is requested, in milliseconds. */
  wait?: number;
  /**
   * The address of the node: for `live` of the stream, for `waiting` of the last stream. Undefined
   * if there was no stream because the client got no token.
   */
  addr?: string;
  /**
   * For `live` of a presence: its loginToken from that moment on. Undefined for a subscription and
   * for an invisible presence.
   */
  loginToken?: string;
}

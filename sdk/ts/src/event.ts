import type { GapReason as GapReasons, LostReason as LostReasons } from "@parleyhq/api/parley/v1/message_pb.js";
import type { Message } from "./message.js";

/** ChannelState is where a channel stands as its events begin. */
export interface ChannelState {
  epoch: string;
  /** The first entry that the log still holds; 0 while the log is empty. */
  oldestSeq: number;
  /** The last entry when the state was taken; 0 while the log is empty. */
  headSeq: number;
  /** How many messages the log holds up to and with headSeq. */
  count: number;
  /** True if everything after the position follows; false for live only, and where a gap follows. */
  recovered: boolean;
}

/** GapReason is why entries can't be had; empty where the server itself skipped entries, again and again. */
export type GapReason = "" | Exclude<keyof typeof GapReasons, "UNSPECIFIED"> | `REASON_${number}`;

/** LostReason is why a subscription lost a channel. */
export type LostReason = "" | Exclude<keyof typeof LostReasons, "UNSPECIFIED"> | `REASON_${number}`;

/** Gap is the explicit hole in a channel's events. */
export interface Gap {
  /** What the program has up to here is all that it can keep, and in another epoch not even that. */
  fromSeq: number;
  /** Events go on after this one. */
  toSeq: number;
  epoch: string;
  reason: GapReason;
}

interface Common {
  channelId: string;
  /**
   * The entry's place in the log; for `channel_state` and `gap`, the position from which the channel goes on; for
   * `lost` the position up to which events had come; 0 for `typing`.
   */
  seq: number;
  epoch: string;
}

/**
 * EntryEvent is a new message, the whole message after an edit, or the tombstone that a recall left. In a replay `sent`
 * has the message as it is now, which may be edited or recalled.
 */
export interface EntryEvent extends Common {
  kind: "sent" | "edited" | "recalled";
  message: Message;
}

/**
 * StateEvent is where a channel stands as its events begin: once per channel and stream, so again after each reconnect.
 */
export interface StateEvent extends Common {
  kind: "channel_state";
  state: ChannelState;
}

/**
 * GapEvent says that entries can't be had. The subscription goes on behind them; what the program holds of the channel
 * is to be loaded anew with history.
 */
export interface GapEvent extends Common {
  kind: "gap";
  gap: Gap;
}

/**
 * LostEvent is a channel's last event: it takes members only, and the user is none any more. The subscription goes on
 * for the others; to follow the channel again, add it.
 */
export interface LostEvent extends Common {
  kind: "lost";
  reason: LostReason;
}

/** TypingEvent says that somebody is typing; show it for 6 s. It has no place in the log. */
export interface TypingEvent extends Common {
  kind: "typing";
  userId: string;
}

/**
 * Event is something that a subscription learned about a channel. Events of one channel come in the order of its log,
 * each entry once.
 */
export type Event = EntryEvent | StateEvent | GapEvent | LostEvent | TypingEvent;

/**
 * State is what a subscription is doing: `connecting` until a stream's first frame, `live` while a stream is up,
 * `waiting` between two streams, `ended` for good.
 */
export type State = "connecting" | "live" | "waiting" | "ended";

/** StateChange tells of a subscription's new state. */
export interface StateChange {
  state: State;
  /**
   * Why the last stream ended, for `waiting`, a ParleyError; and why the subscription did, for `ended`. Absent after a
   * server's advice to reconnect.
   */
  error?: Error;
  /** How long `waiting` lasts at most, in milliseconds. */
  wait?: number;
  /**
   * The address of the node: for `live` the stream's, for `waiting` the last stream's, absent if none was tried for
   * want of a token.
   */
  addr?: string;
}

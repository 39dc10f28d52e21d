import type {
  ChannelPresence,
  Event,
  Message,
  PresenceEvent,
  ReadCursor,
  Receipt,
  StateChange,
  UserChannel,
} from "@parleyhq/sdk";
import type { Clock } from "../../connection/clock";
import type { ChannelAction } from "../../connection/token";

export type {
  ChannelAction,
  ChannelPresence,
  Event,
  Message,
  PresenceEvent,
  ReadCursor,
  Receipt,
  StateChange,
  UserChannel,
};

/** ChatPresence is the part of a presence that the model uses. */
export interface ChatPresence {
  next(): Promise<PresenceEvent>;
  watchChannels(channelIds: readonly string[]): Promise<void>;
  unwatchChannels(channelIds: readonly string[]): Promise<void>;
  close(): void;
}

/** ChatSubscription is the part of a subscription that the model uses. */
export interface ChatSubscription {
  next(): Promise<Event>;
  add(channelId: string): Promise<void>;
  remove(channelId: string): Promise<void>;
  close(): void;
}

/**
 * Finding is the result of a look-up of a channel. `open` is a channel and its number of messages,
 * `members` a members-only channel of which the user is not a member, `free` no channel. `unknown`
 * means that the token or the connection does not allow the look-up.
 */
export type Finding =
  | { readonly kind: "open"; readonly count: number }
  | { readonly kind: "members" }
  | { readonly kind: "free" }
  | { readonly kind: "unknown" };

/**
 * ChatClient is the part of the SDK that the model uses. Calls have no time limit: they are retried
 * until they succeed, fail permanently, or are aborted.
 */
export interface ChatClient {
  send(
    channelId: string,
    content: string,
    options: { clientMsgId: string; type: string; signal: AbortSignal },
  ): Promise<Receipt>;
  edit(channelId: string, msgId: string, content: string, options: { signal: AbortSignal }): Promise<unknown>;
  recall(channelId: string, msgId: string, options: { signal: AbortSignal }): Promise<unknown>;
  history(
    channelId: string,
    options: { afterSeq?: number; beforeSeq?: number; pageSize: number; limit: number; signal: AbortSignal },
  ): AsyncIterable<Message>;
  channels(options: { pageSize: number; signal: AbortSignal }): AsyncIterable<UserChannel>;
  markRead(channelId: string, seq: number, options: { signal: AbortSignal }): Promise<ReadCursor>;
  typing(channelId: string, options: { signal: AbortSignal }): Promise<void>;
  /** Reports whether the token allows an action on a channel. */
  can(action: ChannelAction, channelId: string): boolean;
  /** Looks up whether a channel exists, within a few seconds. It does not reject. */
  lookup(channelId: string): Promise<Finding>;
  /** Follows the channels, each with live events only. */
  subscribe(channelIds: readonly string[], onState: (change: StateChange) => void): ChatSubscription;
  /**
   * Makes this tab a device of the user that is online, in the background while the tab is hidden.
   * It shares the subscription's stream. Null if the token does not allow it.
   */
  presence(): ChatPresence | null;
  close(): void;
}

/** Environment is the environment of the model. Tests replace the clock and the frames. */
export interface Environment extends Clock {
  /** Calls callback before the next frame is drawn, or soon on a page that draws none. */
  frame(callback: () => void): void;
  /**
   * Notifies the user's other tabs that the user read a channel up to a message with this seq and
   * count.
   */
  read(channelId: string, seq: number, count: number): void;
  /** The storage of unsent messages. Null if the browser has none. */
  storage: Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length"> | null;
}

/** aborted reports whether the signal's owner gave up, so that an error needs no handling. */
export function aborted(signal: AbortSignal): boolean {
  return signal.aborted;
}

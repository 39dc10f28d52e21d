import type { Event, Message, ReadCursor, Receipt, StateChange, UserChannel } from "@parleyhq/sdk";
import type { Clock } from "../../connection/clock";

export type { Event, Message, ReadCursor, Receipt, StateChange, UserChannel };

/** What the model needs of a subscription: the events one by one, and ways to follow one more channel or one less. */
export interface ChatSubscription {
  next(): Promise<Event>;
  add(channelId: string): Promise<void>;
  remove(channelId: string): Promise<void>;
  close(): void;
}

/**
 * What the model requires of the SDK. Calls have no time limit: they are retried until they
 * succeed, fail for good, or are aborted.
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
  /** Follows the channels, each from now on. */
  subscribe(channelIds: readonly string[], onState: (change: StateChange) => void): ChatSubscription;
  close(): void;
}

/** What the model needs of its surroundings, so that tests own the clock and the frames. */
export interface Surroundings extends Clock {
  /** Calls back before the next frame is drawn, or soon where nothing is drawn. */
  frame(callback: () => void): void;
  /** Tells the user's other tabs that he read a channel up to a message with this seq and count. */
  read(channelId: string, seq: number, count: number): void;
  /** Where unsent messages are kept; null where the browser has no such place. */
  storage: Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length"> | null;
}

/** Whether an error only says that its caller gave up. */
export function aborted(signal: AbortSignal): boolean {
  return signal.aborted;
}

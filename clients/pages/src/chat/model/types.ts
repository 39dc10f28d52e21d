import type { Event, Message, ReadCursor, Receipt, StateChange, UserChannel } from "@parleyhq/sdk";

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
export interface Surroundings {
  /** Milliseconds since 1970. */
  now(): number;
  /** Calls back before the next frame is drawn, or soon where nothing is drawn. */
  frame(callback: () => void): void;
  /** Calls back after so many milliseconds; the answer cancels it. */
  after(ms: number, callback: () => void): () => void;
  /** Tells the user's other tabs that he read a channel up to a message with this seq and count. */
  read(channelId: string, seq: number, count: number): void;
  /** Where unsent messages are kept; null where the browser has no such place. */
  storage: Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length"> | null;
}

/** What is known of an error, whoever raised it. */
export interface Failure {
  /** Parley's reason, as `NOT_MEMBER`; empty if it has none. */
  reason: string;
  /** What to show. */
  text: string;
  /** Whether the server refused the token. */
  token: boolean;
  /** The request's field that is at fault. */
  field: string;
  /** The channels that the error names. */
  channels: readonly string[];
}

const unauthenticated = 16;

// What the reasons mean to a user of this page; of others the server's own text is shown.
const words: Record<string, string> = {
  TOKEN_INVALID: "The token is not valid.",
  TOKEN_EXPIRED: "The token has expired.",
  CAPABILITY_MISSING: "The token does not allow this.",
  NODE_FULL: "The server has no room for another connection.",
  NOT_MEMBER: "This channel takes members only, and you are not one of them.",
  NOT_SENDER: "The message is somebody else's.",
  MESSAGE_RECALLED: "The message was taken back.",
  TOO_LARGE: "It is too long.",
};

/** Reads an error of the SDK, or any other. */
export function failure(cause: unknown): Failure {
  const error = (typeof cause === "object" && cause !== null ? cause : {}) as {
    reason?: unknown;
    code?: unknown;
    message?: unknown;
    field?: unknown;
    positions?: unknown;
  };
  const reason = typeof error.reason === "string" ? error.reason : "";
  const positions = Array.isArray(error.positions) ? (error.positions as { channelId?: unknown }[]) : [];
  return {
    reason,
    text: words[reason] ?? (typeof error.message === "string" ? error.message : String(cause)),
    token: reason === "TOKEN_INVALID" || reason === "TOKEN_EXPIRED" || error.code === unauthenticated,
    field: typeof error.field === "string" ? error.field : "",
    channels: positions.map((p) => String(p.channelId ?? "")),
  };
}

/** Whether an error only says that its caller gave up. */
export function aborted(signal: AbortSignal): boolean {
  return signal.aborted;
}

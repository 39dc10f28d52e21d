import type { DeltaEvent, EntryEvent, Event, Message, Receipt, SessionInfo, StateChange } from "@parleyhq/sdk";
import type { Clock } from "../../connection/clock";
import type { SessionAction } from "../../connection/token";

export type { DeltaEvent, EntryEvent, Event, Message, Receipt, SessionAction, SessionInfo, StateChange };

/** AssistantSubscription is the part of a subscription that the model uses. */
export interface AssistantSubscription {
  next(): Promise<Event>;
  add(sessionId: string): Promise<void>;
  remove(sessionId: string): Promise<void>;
  close(): void;
}

/** Options are the options of a call. */
export interface Options {
  readonly signal: AbortSignal;
}

/**
 * AssistantClient is the part of the SDK that the model uses. Calls have no time limit: they are
 * retried until they succeed, fail permanently, or are aborted.
 */
export interface AssistantClient {
  sessions(options: Options & { pageSize: number }): AsyncIterable<SessionInfo>;
  /** Appends a message of the user. The first one creates the session, with the title. */
  append(
    sessionId: string,
    content: string,
    options: Options & { clientMsgId: string; title: string },
  ): Promise<Receipt>;
  messages(
    sessionId: string,
    options: Options & { beforeSeq?: number; pageSize: number; limit: number },
  ): AsyncIterable<Message>;
  edit(sessionId: string, msgId: string, content: string, options: Options): Promise<unknown>;
  recall(sessionId: string, msgId: string, options: Options): Promise<unknown>;
  cancel(sessionId: string, msgId: string, options: Options): Promise<unknown>;
  markRead(sessionId: string, seq: number, options: Options): Promise<unknown>;
  rename(sessionId: string, title: string, options: Options): Promise<void>;
  remove(sessionId: string, options: Options): Promise<void>;
  /** Follows sessions, each with live events only. It begins with none. */
  subscribe(onState: (change: StateChange) => void): AssistantSubscription;
  /** Reports whether the token allows an action on a session. */
  can(action: SessionAction, sessionId: string): boolean;
  close(): void;
}

/** Environment is the environment of the model. Tests replace it. */
export interface Environment extends Clock {
  /** Calls callback before the next frame is drawn, or soon on a page that draws none. */
  frame(callback: () => void): void;
  /** Notifies the user's other tabs that the list of sessions has changed. */
  changed(): void;
  /** Returns a new random id. */
  id(): string;
  /** The storage of the tab, for prompts that are not sent yet. Null if the browser has none. */
  storage: Pick<Storage, "getItem" | "setItem" | "removeItem"> | null;
}

/** sessionOf returns the id of the session of a message or an event. */
export function sessionOf({ channelId }: { channelId: string }): string {
  return channelId.replace(/^~/, "");
}

/** aborted reports whether the signal's owner gave up, so that an error needs no handling. */
export function aborted(signal: AbortSignal): boolean {
  return signal.aborted;
}

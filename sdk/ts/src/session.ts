import type * as pb from "@parleyhq/api/parley/v1/session_pb.js";
import type { Caller } from "./caller.js";
import { safeInteger, text } from "./check.js";
import { date, integer } from "./convert.js";
import { invalid } from "./error.js";
import { type HistoryOptions, history } from "./history.js";
import { newId } from "./id.js";
import type { ListOptions } from "./member.js";
import type { ChangeReceipt, Message, Outgoing, ReadCursor, Receipt } from "./message.js";
import { OpenMessage } from "./openmessage.js";
import type { CallOptions } from "./options.js";
import { type ChangeOptions, checkMetadata, edit, recall, toChange, toReceipt } from "./send.js";
import { channelOf } from "./sessioncall.js";
import { markRead } from "./userchannel.js";

/**
 * SessionRole is who speaks in a message of a session. It is the message's type. Every role but
 * `user` requires the action `manage`.
 */
export type SessionRole = "user" | "assistant" | "system" | "tool";

/** AppendOptions are the options of Session.append and Session.open. */
export type AppendOptions = Omit<Outgoing, "channelId" | "content" | "type"> & {
  /**
   * The title of the session if the call creates it, up to 256 bytes of UTF-8. Otherwise it is
   * ignored.
   */
  title?: string;
} & CallOptions;

/** SessionListOptions selects the sessions of a list. */
export interface SessionListOptions extends ListOptions {
  /**
   * The owner of the sessions. The default is the caller; another user requires the action `manage`
   * on `session:*`, or the action `read` of `admin`.
   */
  userId?: string;
  /** Selects the sessions of all users. Requires the action `manage` on `session:*`. */
  allUsers?: boolean;
}

/** SessionInfo describes a session. */
export interface SessionInfo {
  sessionId: string;
  /** The id of the session's channel. */
  channelId: string;
  ownerId: string;
  /** The title; empty if the session has none. */
  title: string;
  createTime: Date;
  /** When the last message was appended. */
  activeTime: Date;
  /** The last entry of the log. */
  headSeq: number;
  /** The number of messages that the log ever had up to and including headSeq. */
  count: number;
  /** The owner's read cursor. */
  readSeq: number;
  /** The number of messages after readSeq. */
  unread: number;
  /** The epoch of the seqs above. */
  epoch: string;
}

/**
 * Session is the conversation of a user with an assistant: a log that only its owner and holders of
 * the action `manage` can use. The first message creates it. A Session object holds no state.
 */
export class Session {
  /** The id of the session. */
  readonly id: string;
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller, id: string) {
    this.#caller = caller;
    this.id = id;
  }

  /**
   * The id of the session's channel: that of its messages, events and positions, and the one to
   * subscribe to, as in `client.subscribe(fromStart(session.channelId))`.
   */
  get channelId(): string {
    return channelOf(this.id);
  }

  /**
   * append appends a message and resolves when it is durable. If the session does not exist, the
   * call creates it, and its sender is the owner. It is retried as Client.send is.
   */
  async append(role: SessionRole, content: string, options: AppendOptions = {}): Promise<Receipt> {
    return (await this.#append(role, content, false, options)).receipt;
  }

  /**
   * open appends a message that is open: its content is still being generated, and is empty until
   * the message is closed. It is retried as Client.send is.
   *
   * A later call with the same clientMsgId continues an answer whose generator has died. The text
   * starts anew, and the earlier call's message ends with APPEND_SUPERSEDED as soon as text is
   * written.
   */
  async open(role: SessionRole, options: AppendOptions = {}): Promise<OpenMessage> {
    const { receipt, appendToken } = await this.#append(role, "", true, options);
    return new OpenMessage(this.#caller, this.id, receipt, appendToken);
  }

  async #append(role: SessionRole, content: string, open: boolean, options: AppendOptions) {
    const { signal, timeout, metadata, sender, title } = options;
    const clientMsgId = options.clientMsgId || newId();
    if (this.id === "") {
      throw invalid("session_id", "is empty");
    }
    text(
      ["session_id", this.id],
      ["role", role],
      ["content", content],
      ["client_msg_id", clientMsgId],
      ["user_id", sender],
      ["title", title],
    );
    checkMetadata(metadata);
    const request = {
      sessionId: this.id,
      role,
      content,
      clientMsgId,
      metadata: { ...metadata },
      userId: sender,
      open,
      title,
    };
    const res = await this.#caller.retry("AppendSessionMessage", { signal, timeout }, (rpc, opts) =>
      rpc.appendSessionMessage(request, opts),
    );
    return { receipt: toReceipt(this.#caller, this.channelId, res), appendToken: res.appendToken };
  }

  /**
   * messages iterates over the session's messages in their current state, as Client.history does
   * over a channel's: newest first by default. The content of an open message is empty.
   */
  messages(options: HistoryOptions = {}): AsyncGenerator<Message, void> {
    return history(this.#caller, this.channelId, options);
  }

  /**
   * edit replaces the content of a message. Only the sender can edit. It rejects with MESSAGE_OPEN
   * while the message is open.
   */
  async edit(msgId: string, content: string, options: ChangeOptions = {}): Promise<ChangeReceipt> {
    return edit(this.#caller, this.channelId, msgId, content, options);
  }

  /**
   * recall permanently removes the content and metadata of a message. The owner can recall every
   * message of the session. Recalling a recalled message returns the first recall.
   */
  async recall(msgId: string, options: ChangeOptions = {}): Promise<ChangeReceipt> {
    return recall(this.#caller, this.channelId, msgId, options);
  }

  /**
   * cancel closes an open message as cancelled, with the text that was streamed until now, and ends
   * its OpenMessage in the program that generates it. It rejects with MESSAGE_CLOSED if the message
   * is not open.
   */
  async cancel(msgId: string, options: ChangeOptions = {}): Promise<ChangeReceipt> {
    const request = { sessionId: this.id, msgId, clientMsgId: options.clientMsgId || newId() };
    text(["session_id", this.id], ["msg_id", msgId], ["client_msg_id", request.clientMsgId]);
    const res = await this.#caller.retry("CancelSessionMessage", options, (rpc, opts) =>
      rpc.cancelSessionMessage(request, opts),
    );
    return toChange(this.#caller, { ...request, channelId: this.channelId }, res);
  }

  /**
   * markRead moves the owner's read cursor forward to seq and returns the cursor, as
   * Client.markRead does. Only the owner has one.
   */
  async markRead(seq: number, options: CallOptions = {}): Promise<ReadCursor> {
    return markRead(this.#caller, this.channelId, seq, options);
  }

  /** rename sets the title, up to 256 bytes of UTF-8. An empty title removes it. */
  async rename(title: string, options: CallOptions = {}): Promise<void> {
    const request = { sessionId: this.id, title };
    text(["session_id", this.id], ["title", title]);
    await this.#caller.retry("RenameSession", options, (rpc, opts) => rpc.renameSession(request, opts));
  }

  /**
   * delete deletes the session with its messages. Its id can never be used again. Only the owner
   * and holders of the action `manage` can delete. Deleting a deleted session does nothing.
   */
  async delete(options: CallOptions = {}): Promise<void> {
    text(["session_id", this.id]);
    await this.#caller.retry("DeleteSession", options, (rpc, opts) => rpc.deleteSession({ sessionId: this.id }, opts));
  }
}

export async function* sessions(caller: Caller, options: SessionListOptions): AsyncGenerator<SessionInfo> {
  const { userId, allUsers, pageSize } = options;
  text(["user_id", userId]);
  safeInteger("page_size", pageSize);
  let pageToken = "";
  do {
    const request = { userId, allUsers, pageSize, pageToken };
    const res = await caller.retry("ListSessions", options, (rpc, opts) => rpc.listSessions(request, opts));
    const page = res.sessions.map(toSession);
    for (const { channelId, epoch, headSeq } of page) {
      caller.heads.observe(channelId, epoch, headSeq);
    }
    yield* page;
    pageToken = res.nextPageToken;
  } while (pageToken !== "");
}

function toSession(s: pb.Session): SessionInfo {
  return {
    sessionId: s.sessionId,
    channelId: channelOf(s.sessionId),
    ownerId: s.ownerId,
    title: s.title,
    createTime: date(s.createTime),
    activeTime: date(s.activeTime),
    headSeq: integer(s.headSeq),
    count: integer(s.count),
    readSeq: integer(s.readSeq),
    unread: integer(s.unread),
    epoch: s.epoch,
  };
}

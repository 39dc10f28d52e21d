import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code, type HandlerContext } from "@connectrpc/connect";
import { type ChannelMessage, MessageStatus } from "@parleyhq/api/parley/v1/channel_pb.js";
import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import { type ListMessagesRequest, ListMessagesRequestSchema } from "@parleyhq/api/parley/v1/message_pb.js";
import * as pb from "@parleyhq/api/parley/v1/session_pb.js";
import { type Fake, failure } from "./fake.js";
import type { ChannelLog } from "./log.js";

/** OpenText is the text of an open message. */
interface OpenText {
  msgId: string;
  channelId: string;
  /** The highest attempt that was used. 0 before the first delta. */
  attempt: number;
  text: Buffer;
}

type Work = <Req, Res>(
  method: string,
  work: (req: Req, user: string) => Res,
) => (req: Req, context: HandlerContext) => Promise<Res>;

const statuses = {
  [pb.SessionOutcome.UNSPECIFIED]: MessageStatus.UNSPECIFIED,
  [pb.SessionOutcome.COMPLETE]: MessageStatus.SENT,
  [pb.SessionOutcome.CANCELLED]: MessageStatus.CANCELLED,
  [pb.SessionOutcome.FAILED]: MessageStatus.FAILED,
};

/** Sessions are the sessions of the fake server. It does not check who calls. */
export class Sessions {
  readonly #server: Fake;
  readonly #sessions = new Map<string, { owner: string; title: string; deleted: boolean; readSeq: bigint }>();
  readonly #texts = new Map<string, OpenText>();
  #attempts = 0;

  constructor(server: Fake) {
    this.#server = server;
  }

  /** texts returns the texts of a session's open messages that have deltas. */
  texts(channelId: string): OpenText[] {
    return [...this.#texts.values()].filter((open) => open.channelId === channelId && open.attempt > 0);
  }

  /** text returns the text of an open message. */
  text(msgId: string): string {
    return this.#texts.get(msgId)?.text.toString() ?? "";
  }

  /** forget keeps only the first bytes of an open text, like a node that took over for a dead one. */
  forget(msgId: string, keep = 0): void {
    const open = this.#texts.get(msgId);
    if (open !== undefined) {
      open.text = open.text.subarray(0, keep);
    }
  }

  /** cancel closes an open message as its user would. */
  cancel(sessionId: string, msgId: string): void {
    const { log, message } = this.#find(sessionId, msgId);
    this.#close(log, message, `cancel-${msgId}`, MessageStatus.CANCELLED, this.text(msgId));
    this.#server.wake();
  }

  /** calls returns the handlers of the calls. */
  calls(call: Work) {
    return {
      appendSessionMessage: call("AppendSessionMessage", (req: pb.AppendSessionMessageRequest, from) =>
        this.#append(req, from),
      ),
      appendSessionDelta: call("AppendSessionDelta", (req: pb.AppendSessionDeltaRequest) => this.#delta(req)),
      closeSessionMessage: call("CloseSessionMessage", (req: pb.CloseSessionMessageRequest) => {
        const { log, message } = this.#find(req.sessionId, req.msgId);
        return this.#close(log, message, req.clientMsgId, statuses[req.outcome], req.content);
      }),
      cancelSessionMessage: call("CancelSessionMessage", (req: pb.CancelSessionMessageRequest) => {
        const { log, message } = this.#find(req.sessionId, req.msgId);
        return this.#close(log, message, req.clientMsgId, MessageStatus.CANCELLED, this.text(req.msgId));
      }),
      listSessionMessages: call("ListSessionMessages", (req: pb.ListSessionMessagesRequest) => this.#list(req)),
      editSessionMessage: call("EditSessionMessage", (req: pb.EditSessionMessageRequest) => this.#edit(req)),
      recallSessionMessage: call("RecallSessionMessage", (req: pb.RecallSessionMessageRequest) => this.#recall(req)),
      listSessions: call("ListSessions", (req: pb.ListSessionsRequest, from) => this.#sessionsOf(req, from)),
      renameSession: call("RenameSession", (req: pb.RenameSessionRequest) => {
        this.#log(req.sessionId);
        Object.assign(this.#sessions.get(req.sessionId) ?? {}, { title: req.title });
        return {};
      }),
      deleteSession: call("DeleteSession", (req: pb.DeleteSessionRequest) => {
        Object.assign(this.#sessions.get(req.sessionId) ?? {}, { deleted: true });
        return {};
      }),
      markSessionRead: call("MarkSessionRead", (req: pb.MarkSessionReadRequest) => {
        const log = this.#log(req.sessionId);
        Object.assign(this.#sessions.get(req.sessionId) ?? {}, { readSeq: req.seq });
        const unread = BigInt(log.messages.filter((m) => m.seq > req.seq).length);
        return { readSeq: req.seq, unread, epoch: log.epoch };
      }),
    };
  }

  #log(sessionId: string): ChannelLog {
    const session = this.#sessions.get(sessionId);
    if (session === undefined || session.deleted) {
      throw failure(Code.NotFound, ErrorReason.CHANNEL_NOT_FOUND);
    }
    return this.#server.log(`~${sessionId}`);
  }

  #find(sessionId: string, msgId: string): { log: ChannelLog; message: ChannelMessage } {
    const log = this.#log(sessionId);
    const message = log.messages.find((m) => m.msgId === msgId);
    if (message === undefined) {
      throw failure(Code.NotFound, ErrorReason.MESSAGE_NOT_FOUND);
    }
    return { log, message };
  }

  #append(req: pb.AppendSessionMessageRequest, from: string) {
    const known = this.#sessions.get(req.sessionId);
    if (known?.deleted) {
      throw failure(Code.FailedPrecondition, ErrorReason.SESSION_DELETED);
    }
    if (known === undefined) {
      if (req.userId === "" && req.role !== "user" && req.role !== "") {
        throw failure(Code.NotFound, ErrorReason.CHANNEL_NOT_FOUND);
      }
      this.#sessions.set(req.sessionId, { owner: req.userId || from, title: req.title, deleted: false, readSeq: 0n });
    }
    const { content, clientMsgId, metadata, role, userId, open, sessionId } = req;
    const log = this.#server.log(`~${sessionId}`);
    const sent = log.send(from, { content, clientMsgId, metadata, msgType: role || "user", fromId: userId });
    const { message } = this.#find(sessionId, sent.msgId);
    if (open && !sent.duplicate) {
      message.status = MessageStatus.OPEN;
      this.#texts.set(sent.msgId, { msgId: sent.msgId, channelId: log.id, attempt: 0, text: Buffer.alloc(0) });
    }
    const { $typeName: _, $unknown: __, ...rest } = sent;
    const appendToken = message.status === MessageStatus.OPEN ? `attempt ${++this.#attempts}` : "";
    return { ...rest, sessionId, appendToken };
  }

  #delta(req: pb.AppendSessionDeltaRequest) {
    const { message } = this.#find(req.sessionId, req.msgId);
    const open = this.#texts.get(req.msgId);
    if (message.status !== MessageStatus.OPEN || open === undefined) {
      return { length: 0n, status: message.status };
    }
    const attempt = Number(req.appendToken.split(" ")[1]);
    if (attempt < open.attempt) {
      throw failure(Code.FailedPrecondition, ErrorReason.APPEND_SUPERSEDED);
    }
    if (attempt > open.attempt) {
      Object.assign(open, { attempt, text: Buffer.alloc(0) });
    }
    const missing = Number(req.offset) - open.text.length;
    if (missing > 0) {
      throw failure(Code.OutOfRange, ErrorReason.POSITION_OUT_OF_RANGE, { limit: BigInt(open.text.length) });
    }
    open.text = Buffer.concat([open.text, Buffer.from(req.text).subarray(-missing)]);
    return { length: BigInt(open.text.length), status: MessageStatus.OPEN };
  }

  #close(log: ChannelLog, message: ChannelMessage, clientMsgId: string, status: MessageStatus, content: string) {
    const key = `close ${clientMsgId}`;
    if (!log.knows(key)) {
      if (message.status !== MessageStatus.OPEN) {
        const recalled = message.status === MessageStatus.RECALLED;
        const reason = recalled ? ErrorReason.MESSAGE_RECALLED : ErrorReason.MESSAGE_CLOSED;
        throw failure(Code.FailedPrecondition, reason);
      }
      Object.assign(message, { content, status });
      this.#texts.delete(message.msgId);
    }
    const { seq, duplicate } = log.append(key, "closed", message);
    return { message, seq: BigInt(seq), duplicate, epoch: log.epoch };
  }

  #list(req: pb.ListSessionMessagesRequest) {
    const log = this.#log(req.sessionId);
    if (req.minSeq > BigInt(log.head)) {
      throw failure(Code.OutOfRange, ErrorReason.POSITION_OUT_OF_RANGE);
    }
    const { afterSeq, beforeSeq, pageSize, pageToken } = req;
    const query: ListMessagesRequest = create(ListMessagesRequestSchema, { afterSeq, beforeSeq, pageSize, pageToken });
    const { $typeName: _, $unknown: __, ...page } = log.page(query);
    return page;
  }

  #edit(req: pb.EditSessionMessageRequest) {
    const { log, message } = this.#find(req.sessionId, req.msgId);
    if (message.status === MessageStatus.OPEN) {
      throw failure(Code.FailedPrecondition, ErrorReason.MESSAGE_OPEN);
    }
    const { seq, duplicate } = log.append(`edit ${req.clientMsgId}`, "edited", message);
    Object.assign(message, { content: req.content, status: MessageStatus.EDITED });
    return { message, seq: BigInt(seq), duplicate, epoch: log.epoch };
  }

  #recall(req: pb.RecallSessionMessageRequest) {
    const { log, message } = this.#find(req.sessionId, req.msgId);
    const { seq, duplicate } = log.append(`recall ${req.msgId}`, "recalled", message);
    Object.assign(message, { content: "", metadata: {}, status: MessageStatus.RECALLED });
    this.#texts.delete(req.msgId);
    return { message, seq: BigInt(seq), duplicate, epoch: log.epoch };
  }

  #sessionsOf(req: pb.ListSessionsRequest, from: string) {
    const all = [...this.#sessions]
      .filter(([, s]) => !s.deleted && (req.allUsers || s.owner === (req.userId || from)))
      .map(([sessionId, { owner, title, readSeq }]) => {
        const log = this.#server.log(`~${sessionId}`);
        const last = log.messages.at(-1);
        return {
          sessionId,
          ownerId: owner,
          title,
          readSeq,
          createTime: log.messages[0]?.msgTime ?? timestampFromMs(0),
          activeTime: last?.msgTime ?? timestampFromMs(0),
          headSeq: BigInt(log.head),
          count: BigInt(log.count),
          unread: BigInt(log.messages.filter((m) => m.seq > readSeq).length),
          epoch: log.epoch,
        };
      });
    const at = Number(req.pageToken || 0);
    const size = req.pageSize || 50;
    return { sessions: all.slice(at, at + size), nextPageToken: at + size < all.length ? `${at + size}` : "" };
  }
}

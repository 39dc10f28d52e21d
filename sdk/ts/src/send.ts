import { create } from "@bufbuild/protobuf";
import { ChannelMessageSchema } from "@parleyhq/api/parley/v1/channel_pb.js";
import * as pb from "@parleyhq/api/parley/v1/message_pb.js";
import type { AppendSessionMessageResponse } from "@parleyhq/api/parley/v1/session_pb.js";
import type { Caller } from "./caller.js";
import { text } from "./check.js";
import { date, integer, toMessage } from "./convert.js";
import { invalid } from "./error.js";
import { newId } from "./id.js";
import type { ChangeReceipt, Outgoing, Receipt, StoredMessage } from "./message.js";
import type { CallOptions } from "./options.js";
import { type Change, type Changed, editMessage, recallMessage } from "./sessioncall.js";

/** ChangeOptions are the options of an edit and a recall. */
export interface ChangeOptions extends CallOptions {
  /**
   * Makes the call idempotent, also across restarts of the program. The default is a new UUIDv7.
   */
  clientMsgId?: string;
}

/**
 * toRequest returns the request that every attempt sends. It throws INVALID_FIELD for a value that
 * cannot be encoded.
 */
export function toRequest(o: Outgoing): pb.SendMessageRequest {
  const clientMsgId = o.clientMsgId || newId();
  text(
    ["channel_id", o.channelId],
    ["content", o.content],
    ["client_msg_id", clientMsgId],
    ["msg_type", o.type],
    ["from_id", o.sender],
  );
  checkMetadata(o.metadata);
  return create(pb.SendMessageRequestSchema, {
    channelId: o.channelId,
    content: o.content,
    clientMsgId,
    msgType: o.type,
    fromId: o.sender,
    metadata: { ...o.metadata },
  });
}

/** checkMetadata throws INVALID_FIELD for metadata that cannot be encoded. */
export function checkMetadata(metadata: Outgoing["metadata"]): void {
  for (const [key, value] of Object.entries(metadata ?? {})) {
    if (value === undefined) {
      throw invalid("metadata", "is not a string");
    }
    text(["metadata", key], ["metadata", value]);
  }
}

/** toReceipt converts the response of a send or an append and records its seq in caller.heads. */
export function toReceipt(
  caller: Caller,
  channelId: string,
  res: pb.SendMessageResponse | AppendSessionMessageResponse,
): Receipt {
  const seq = integer(res.seq);
  caller.heads.observe(channelId, res.epoch, seq);
  return {
    channelId,
    msgId: res.msgId,
    seq,
    count: integer(res.count),
    time: date(res.msgTime),
    clientMsgId: res.clientMsgId,
    epoch: res.epoch,
    duplicate: res.duplicate,
  };
}

export async function send(caller: Caller, message: Outgoing, options: CallOptions): Promise<Receipt> {
  const request = toRequest(message);
  const res = await caller.retry("SendMessage", options, (rpc, opts) => rpc.sendMessage(request, opts));
  return toReceipt(caller, request.channelId, res);
}

/** toChange converts the response of a change and records its seq in caller.heads. */
export function toChange(caller: Caller, request: Change, res: Changed): ChangeReceipt {
  const message = res.message && toMessage(res.message);
  const seq = integer(res.seq);
  caller.heads.observe(request.channelId, res.epoch, Math.max(seq, message?.changedSeq ?? 0));
  return {
    channelId: request.channelId,
    msgId: request.msgId,
    message,
    seq,
    time: date(res.msgTime),
    clientMsgId: request.clientMsgId,
    epoch: res.epoch,
    duplicate: res.duplicate,
  };
}

export async function edit(
  caller: Caller,
  channelId: string,
  msgId: string,
  content: string,
  options: ChangeOptions,
): Promise<ChangeReceipt> {
  const request = { channelId, msgId, content, clientMsgId: options.clientMsgId || newId() };
  text(["channel_id", channelId], ["msg_id", msgId], ["content", content], ["client_msg_id", request.clientMsgId]);
  const res = await caller.retry("EditMessage", options, (rpc, opts) => editMessage(rpc, request, opts));
  return toChange(caller, request, res);
}

export async function recall(
  caller: Caller,
  channelId: string,
  msgId: string,
  options: ChangeOptions,
): Promise<ChangeReceipt> {
  const request = { channelId, msgId, clientMsgId: options.clientMsgId || newId() };
  text(["channel_id", channelId], ["msg_id", msgId], ["client_msg_id", request.clientMsgId]);
  const res = await caller.retry("RecallMessage", options, (rpc, opts) => recallMessage(rpc, request, opts));
  return toChange(caller, request, res);
}

export async function get(
  caller: Caller,
  channelId: string,
  msgId: string,
  options: CallOptions,
): Promise<StoredMessage> {
  text(["channel_id", channelId], ["msg_id", msgId]);
  const res = await caller.retry("GetMessage", options, (rpc, opts) => rpc.getMessage({ channelId, msgId }, opts));
  const message = toMessage(res.message ?? create(ChannelMessageSchema));
  caller.heads.observe(channelId, res.epoch, message.changedSeq);
  return { ...message, epoch: res.epoch };
}

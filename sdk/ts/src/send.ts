import { create } from "@bufbuild/protobuf";
import * as pb from "@parleyhq/api/parley/v1/message_pb.js";
import { v7 as uuidv7 } from "uuid";
import type { Caller } from "./caller.js";
import { text } from "./check.js";
import { date, integer, toMessage } from "./convert.js";
import { invalid } from "./error.js";
import type { Message, Outgoing, Receipt } from "./message.js";

/** ChangeOptions are those of an edit and a recall. */
export interface ChangeOptions {
  /** Makes the call idempotent, for a program that repeats it itself, as after a restart. Minted where it is absent. */
  clientMsgId?: string;
  signal?: AbortSignal;
}

/**
 * mint makes a client_msg_id, which sorts by time. It works without a secure context, where crypto.randomUUID does not.
 */
function mint(): string {
  return uuidv7();
}

/** toRequest makes what every attempt of this message sends. It throws INVALID_FIELD for what can't be encoded. */
export function toRequest(o: Outgoing): pb.SendMessageRequest {
  const clientMsgId = o.clientMsgId || mint();
  text(
    ["channel_id", o.channelId],
    ["content", o.content],
    ["client_msg_id", clientMsgId],
    ["msg_type", o.type],
    ["from_id", o.sender],
  );
  for (const [key, value] of Object.entries(o.metadata ?? {})) {
    if (value === undefined) {
      throw invalid("metadata", "is not a string");
    }
    text(["metadata", key], ["metadata", value]);
  }
  return create(pb.SendMessageRequestSchema, {
    channelId: o.channelId,
    content: o.content,
    clientMsgId,
    msgType: o.type,
    fromId: o.sender,
    metadata: { ...o.metadata },
  });
}

/** toReceipt makes a message's receipt, and notes how far its channel is. */
export function toReceipt(caller: Caller, channelId: string, res: pb.SendMessageResponse): Receipt {
  const seq = integer(res.seq);
  caller.heads.note(channelId, res.epoch, seq);
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

export async function send(caller: Caller, message: Outgoing, signal: AbortSignal | undefined): Promise<Receipt> {
  const request = toRequest(message);
  const res = await caller.retry("SendMessage", signal, (rpc, options) => rpc.sendMessage(request, options));
  return toReceipt(caller, request.channelId, res);
}

/** changed makes the receipt of an edit or a recall. */
function changed(
  caller: Caller,
  request: { channelId: string; msgId: string; clientMsgId: string },
  res: pb.EditMessageResponse | pb.RecallMessageResponse,
): Receipt {
  const seq = integer(res.seq);
  caller.heads.note(request.channelId, res.epoch, seq);
  return {
    channelId: request.channelId,
    msgId: request.msgId,
    seq,
    count: 0,
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
): Promise<Receipt> {
  const request = { channelId, msgId, content, clientMsgId: options.clientMsgId || mint() };
  text(["channel_id", channelId], ["msg_id", msgId], ["content", content], ["client_msg_id", request.clientMsgId]);
  const res = await caller.retry("EditMessage", options.signal, (rpc, opts) => rpc.editMessage(request, opts));
  return changed(caller, request, res);
}

export async function recall(
  caller: Caller,
  channelId: string,
  msgId: string,
  options: ChangeOptions,
): Promise<Receipt> {
  const request = { channelId, msgId, clientMsgId: options.clientMsgId || mint() };
  text(["channel_id", channelId], ["msg_id", msgId], ["client_msg_id", request.clientMsgId]);
  const res = await caller.retry("RecallMessage", options.signal, (rpc, opts) => rpc.recallMessage(request, opts));
  return changed(caller, request, res);
}

export async function get(
  caller: Caller,
  channelId: string,
  msgId: string,
  signal: AbortSignal | undefined,
): Promise<Message> {
  text(["channel_id", channelId], ["msg_id", msgId]);
  const res = await caller.retry("GetMessage", signal, (rpc, options) => rpc.getMessage({ channelId, msgId }, options));
  const message = toMessage(res.message ?? create(pb.MessageSchema));
  caller.heads.note(channelId, "", message.changedSeq);
  return message;
}

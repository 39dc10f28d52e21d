import type { CallOptions as RpcOptions } from "@connectrpc/connect";
import type * as channel from "@parleyhq/api/parley/v1/channel_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/message_pb.js";
import type * as session from "@parleyhq/api/parley/v1/session_pb.js";
import type { Rpc } from "./endpoint.js";

/** The first character of the id of a session's channel. */
const prefix = "~";

/** channelOf returns the id of a session's channel. */
export function channelOf(sessionId: string): string {
  return prefix + sessionId;
}

/** sessionOf returns the id of the session whose channel this is. It is undefined for a channel. */
function sessionOf(channelId: string): string | undefined {
  return channelId.startsWith(prefix) ? channelId.slice(prefix.length) : undefined;
}

// The functions below make the call for a channel, or the call for sessions that does the same if
// the channel is a session's. The responses have the same fields.

type Content<T> = Omit<T, "$typeName" | "$unknown">;

/** Page is a page of the messages of a channel or of a session. */
export type Page = Content<pb.ListMessagesResponse | session.ListSessionMessagesResponse>;

export async function listMessages(rpc: Rpc, req: pb.ListMessagesRequest, options: RpcOptions): Promise<Page> {
  const sessionId = sessionOf(req.channelId);
  if (sessionId === undefined) {
    return rpc.listMessages(req, options);
  }
  const { afterSeq, beforeSeq, minSeq, pageSize, pageToken } = req;
  return rpc.listSessionMessages({ sessionId, afterSeq, beforeSeq, minSeq, pageSize, pageToken }, options);
}

/** Changed is the response of an edit, a recall, a close or a cancellation. */
export type Changed = Content<
  | pb.EditMessageResponse
  | pb.RecallMessageResponse
  | session.EditSessionMessageResponse
  | session.RecallSessionMessageResponse
  | session.CloseSessionMessageResponse
  | session.CancelSessionMessageResponse
>;

/** Change identifies a message and the change of it. */
export interface Change {
  channelId: string;
  msgId: string;
  clientMsgId: string;
}

export async function editMessage(rpc: Rpc, req: Change & { content: string }, options: RpcOptions): Promise<Changed> {
  const { channelId, ...rest } = req;
  const sessionId = sessionOf(channelId);
  return sessionId === undefined
    ? rpc.editMessage(req, options)
    : rpc.editSessionMessage({ sessionId, ...rest }, options);
}

export async function recallMessage(rpc: Rpc, req: Change, options: RpcOptions): Promise<Changed> {
  const { channelId, ...rest } = req;
  const sessionId = sessionOf(channelId);
  return sessionId === undefined
    ? rpc.recallMessage(req, options)
    : rpc.recallSessionMessage({ sessionId, ...rest }, options);
}

export async function markRead(
  rpc: Rpc,
  req: { channelId: string; seq: bigint },
  options: RpcOptions,
): Promise<Content<channel.MarkReadResponse | session.MarkSessionReadResponse>> {
  const { channelId, seq } = req;
  const sessionId = sessionOf(channelId);
  return sessionId === undefined
    ? rpc.markRead({ channelId, seq }, options)
    : rpc.markSessionRead({ sessionId, seq }, options);
}

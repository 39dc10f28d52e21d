import { create } from "@bufbuild/protobuf";
import {
  type ListMessagesRequest,
  ListMessagesRequestSchema,
  type ListMessagesResponse,
} from "@parleyhq/api/parley/v1/message_pb.js";
import type { Caller } from "./caller.js";
import { place, text } from "./check.js";
import { integer, toMessage } from "./convert.js";
import { ParleyError } from "./error.js";
import type { Message } from "./message.js";

// The most messages that a server gives at once.
const maxPage = 1_000;

/** HistoryOptions say which messages history gives. */
export interface HistoryOptions {
  /** The messages after this place, oldest first. 0 begins at the log's start. */
  afterSeq?: number;
  /** The messages before this place; newest first, unless afterSeq is given too. */
  beforeSeq?: number;
  /** How many messages one request asks for, up to 1000. The default is the server's, or limit if that is given. */
  pageSize?: number;
  /** Ends the iteration after so many messages. 0 means no limit. */
  limit?: number;
  signal?: AbortSignal;
}

export async function* history(caller: Caller, channelId: string, options: HistoryOptions): AsyncGenerator<Message> {
  const { afterSeq, beforeSeq, limit = 0, signal } = options;
  text(["channel_id", channelId]);
  place("after_seq", afterSeq);
  place("before_seq", beforeSeq);
  place("page_size", options.pageSize);
  const request = create(ListMessagesRequestSchema, {
    channelId,
    afterSeq: afterSeq === undefined ? undefined : BigInt(afterSeq),
    beforeSeq: beforeSeq === undefined ? undefined : BigInt(beforeSeq),
    pageSize: Math.min(Math.max(options.pageSize || limit, 0), maxPage),
    minSeq: BigInt(caller.heads.get(channelId).seq),
  });
  let given = 0;
  do {
    const page = await load(caller, request, signal);
    for (const m of page.messages) {
      yield toMessage(m);
      given++;
      if (given === limit) {
        return;
      }
    }
    request.pageToken = page.nextPageToken;
  } while (request.pageToken !== "");
}

/**
 * load loads one page. Where the log now ends before min_seq it has been restored: what this client was told of it then
 * counts no more, if the epoch confirms that.
 */
async function load(
  caller: Caller,
  request: ListMessagesRequest,
  signal: AbortSignal | undefined,
): Promise<ListMessagesResponse> {
  try {
    return await list(caller, request, signal);
  } catch (err) {
    const beyond = err instanceof ParleyError && err.reason === "POSITION_OUT_OF_RANGE";
    if (!beyond || request.minSeq === 0n || request.pageToken !== "") {
      throw err;
    }
    const known = caller.heads.get(request.channelId);
    const minSeq = request.minSeq;
    request.minSeq = 0n;
    const again = await list(caller, request, signal).catch(() => undefined);
    if (again !== undefined && again.epoch !== known.epoch) {
      return again;
    }
    request.minSeq = minSeq;
    throw err;
  }
}

async function list(
  caller: Caller,
  request: ListMessagesRequest,
  signal: AbortSignal | undefined,
): Promise<ListMessagesResponse> {
  const res = await caller.retry("ListMessages", signal, (rpc, options) => rpc.listMessages(request, options));
  caller.heads.note(request.channelId, res.epoch, integer(res.headSeq));
  return res;
}

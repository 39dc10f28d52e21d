import { create } from "@bufbuild/protobuf";
import { type ListMessagesRequest, ListMessagesRequestSchema } from "@parleyhq/api/parley/v1/message_pb.js";
import type { Caller } from "./caller.js";
import { safeInteger, text } from "./check.js";
import { integer, toMessage } from "./convert.js";
import { ParleyError } from "./error.js";
import type { Message } from "./message.js";
import type { CallOptions } from "./options.js";
import { listMessages, type Page } from "./sessioncall.js";

// The server's maximum page size.
const maxPage = 1_000;

/** HistoryOptions selects the messages of a history. The time limit applies to each page. */
export interface HistoryOptions extends CallOptions {
  /** Selects the messages after this seq, oldest first. 0 starts with the oldest message. */
  afterSeq?: number;
  /** Selects the messages before this seq, newest first unless afterSeq is set too. */
  beforeSeq?: number;
  /**
   * The number of messages per request, at most 1,000. The default is limit. Without a limit the
   * server chooses.
   */
  pageSize?: number;
  /**
   * Ends the iteration after this number of messages, over all pages. 0, the default, means no
   * limit.
   */
  limit?: number;
}

export async function* history(caller: Caller, channelId: string, options: HistoryOptions): AsyncGenerator<Message> {
  const { afterSeq, beforeSeq, limit = 0 } = options;
  text(["channel_id", channelId]);
  safeInteger("after_seq", afterSeq);
  safeInteger("before_seq", beforeSeq);
  safeInteger("page_size", options.pageSize);
  const request = create(ListMessagesRequestSchema, {
    channelId,
    afterSeq: afterSeq === undefined ? undefined : BigInt(afterSeq),
    beforeSeq: beforeSeq === undefined ? undefined : BigInt(beforeSeq),
    pageSize: Math.min(Math.max(options.pageSize || limit, 0), maxPage),
    minSeq: BigInt(caller.heads.get(channelId).seq),
  });
  let yielded = 0;
  do {
    const page = await load(caller, request, options);
    for (const m of page.messages) {
      yield toMessage(m);
      yielded++;
      if (yielded === limit) {
        return;
      }
    }
    request.pageToken = page.nextPageToken;
  } while (request.pageToken !== "");
}

/**
 * load loads one page. If the log ends before min_seq, it may have been restored. load then
 * requests the page without min_seq, and returns it if its epoch is not the one that this client
 * knows. Otherwise it throws the first error.
 */
async function load(caller: Caller, request: ListMessagesRequest, options: CallOptions): Promise<Page> {
  try {
    return await list(caller, request, options);
  } catch (err) {
    const outOfRange = err instanceof ParleyError && err.reason === "POSITION_OUT_OF_RANGE";
    if (!outOfRange || request.minSeq === 0n || request.pageToken !== "") {
      throw err;
    }
    const known = caller.heads.get(request.channelId);
    const minSeq = request.minSeq;
    request.minSeq = 0n;
    const unbounded = await list(caller, request, options).catch(() => undefined);
    if (unbounded !== undefined && unbounded.epoch !== known.epoch) {
      return unbounded;
    }
    request.minSeq = minSeq;
    throw err;
  }
}

async function list(caller: Caller, request: ListMessagesRequest, options: CallOptions): Promise<Page> {
  const res = await caller.retry("ListMessages", options, (rpc, opts) => listMessages(rpc, request, opts));
  caller.heads.observe(request.channelId, res.epoch, integer(res.headSeq));
  return res;
}

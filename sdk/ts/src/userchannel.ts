import type { Caller } from "./caller.js";
import { safeInteger, text } from "./check.js";
import { integer, toUserChannel } from "./convert.js";
import { invalid } from "./error.js";
import type { ListOptions } from "./member.js";
import type { ReadCursor, UserChannel } from "./message.js";
import type { CallOptions } from "./options.js";
import { markRead as markChannelRead } from "./sessioncall.js";

export async function* channels(caller: Caller, options: ListOptions): AsyncGenerator<UserChannel> {
  const { pageSize } = options;
  safeInteger("page_size", pageSize);
  let pageToken = "";
  do {
    const request = { pageSize, pageToken };
    const res = await caller.retry("ListChannels", options, (rpc, opts) => rpc.listChannels(request, opts));
    const page = res.channels.map(toUserChannel);
    for (const { channel } of page) {
      caller.heads.observe(channel.channelId, channel.epoch, channel.headSeq);
    }
    yield* page;
    pageToken = res.nextPageToken;
  } while (pageToken !== "");
}

export async function markRead(
  caller: Caller,
  channelId: string,
  seq: number,
  options: CallOptions,
): Promise<ReadCursor> {
  text(["channel_id", channelId]);
  if (!Number.isSafeInteger(seq)) {
    throw invalid("seq", "is not an integer");
  }
  const request = { channelId, seq: BigInt(seq) };
  const res = await caller.retry("MarkRead", options, (rpc, opts) => markChannelRead(rpc, request, opts));
  return { seq: integer(res.readSeq), unread: integer(res.unread), epoch: res.epoch };
}

export async function typing(caller: Caller, channelId: string, options: CallOptions): Promise<void> {
  text(["channel_id", channelId]);
  await caller.once(options, (rpc, opts) => rpc.sendTyping({ channelId }, opts));
}

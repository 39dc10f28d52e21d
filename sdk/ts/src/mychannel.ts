import type { Caller } from "./caller.js";
import { place, text } from "./check.js";
import { integer, toMyChannel } from "./convert.js";
import { invalid } from "./error.js";
import type { ListOptions } from "./member.js";
import type { MyChannel, ReadCursor } from "./message.js";

export async function* channels(caller: Caller, options: ListOptions): AsyncGenerator<MyChannel> {
  const { pageSize, signal } = options;
  place("page_size", pageSize);
  let pageToken = "";
  do {
    const request = { pageSize, pageToken };
    const res = await caller.retry("ListChannels", signal, (rpc, opts) => rpc.listChannels(request, opts));
    const mine = res.channels.map(toMyChannel);
    for (const { channel } of mine) {
      caller.heads.note(channel.channelId, "", channel.headSeq);
    }
    yield* mine;
    pageToken = res.nextPageToken;
  } while (pageToken !== "");
}

export async function markRead(
  caller: Caller,
  channelId: string,
  seq: number,
  signal: AbortSignal | undefined,
): Promise<ReadCursor> {
  text(["channel_id", channelId]);
  if (!Number.isSafeInteger(seq)) {
    throw invalid("seq", "is not an integer");
  }
  const request = { channelId, seq: BigInt(seq) };
  const res = await caller.retry("MarkRead", signal, (rpc, options) => rpc.markRead(request, options));
  return { seq: integer(res.readSeq), unread: integer(res.unread) };
}

export async function typing(caller: Caller, channelId: string, signal: AbortSignal | undefined): Promise<void> {
  text(["channel_id", channelId]);
  await caller.once(signal, (rpc, options) => rpc.sendTyping({ channelId }, options));
}

import type { Duration } from "@bufbuild/protobuf/wkt";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Caller } from "./caller.js";
import { safeInteger, text } from "./check.js";
import { toChannel } from "./convert.js";
import type { Channel, Retention } from "./message.js";
import type { CallOptions } from "./options.js";

/** SettingsOptions are the options of setRetention, setMembersOnly and deleteChannel. */
export interface SettingsOptions extends CallOptions {
  /**
   * Change or delete the channel only if its settings have not changed since it had this etag.
   * Otherwise the call rejects with ETAG_MISMATCH. A channel that was deleted and created again has
   * another etag.
   */
  etag?: string;
}

/** fromRetention converts a policy. It throws INVALID_FIELD for a limit that is not an integer. */
export function fromRetention(
  r: Retention | undefined,
): { maxAge: Duration | undefined; maxMessages: bigint; maxBytes: bigint } | undefined {
  if (r === undefined) {
    return undefined;
  }
  const { maxAge = 0, maxMessages = 0, maxBytes = 0 } = r;
  safeInteger("retention.max_age", maxAge);
  safeInteger("retention.max_messages", maxMessages);
  safeInteger("retention.max_bytes", maxBytes);
  return {
    maxAge: maxAge === 0 ? undefined : durationFromMs(maxAge),
    maxMessages: BigInt(maxMessages),
    maxBytes: BigInt(maxBytes),
  };
}

export async function channel(caller: Caller, channelId: string, options: CallOptions): Promise<Channel> {
  text(["channel_id", channelId]);
  const res = await caller.retry("GetChannel", options, (rpc, opts) => rpc.getChannel({ channelId }, opts));
  return toChannel(res.channel);
}

export async function setRetention(
  caller: Caller,
  channelId: string,
  retention: Retention | undefined,
  options: SettingsOptions,
): Promise<Channel> {
  const etag = options.etag ?? "";
  text(["channel_id", channelId], ["etag", etag]);
  const request = { channelId, retention: fromRetention(retention), etag, updateMask: { paths: ["retention"] } };
  const res = await caller.retry("UpdateChannel", options, (rpc, opts) => rpc.updateChannel(request, opts));
  return toChannel(res.channel);
}

export async function setMembersOnly(
  caller: Caller,
  channelId: string,
  membersOnly: boolean,
  options: SettingsOptions,
): Promise<Channel> {
  const etag = options.etag ?? "";
  text(["channel_id", channelId], ["etag", etag]);
  const request = { channelId, membersOnly, etag, updateMask: { paths: ["members_only"] } };
  const res = await caller.retry("UpdateChannel", options, (rpc, opts) => rpc.updateChannel(request, opts));
  return toChannel(res.channel);
}

export async function deleteChannel(caller: Caller, channelId: string, options: SettingsOptions): Promise<void> {
  const etag = options.etag ?? "";
  text(["channel_id", channelId], ["etag", etag]);
  await caller.retry("DeleteChannel", options, (rpc, opts) => rpc.deleteChannel({ channelId, etag }, opts));
}

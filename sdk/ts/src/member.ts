import type { CallOptions } from "@connectrpc/connect";
import type { Caller } from "./caller.js";
import { place, text, texts } from "./check.js";
import { toChannel, toMember } from "./convert.js";
import type { Rpc } from "./endpoint.js";
import { ParleyError } from "./error.js";
import type { Channel, Member } from "./message.js";

/** The most users that one request may name. */
const maxUsers = 500;

/** CreateChannelOptions add to a channel that is created. */
export interface CreateChannelOptions {
  /** Makes a channel that only its members may use, for good. Without it the channel is open. */
  membersOnly?: boolean;
  /** Members from the start besides the caller, at most 500; addMembers takes any number. */
  members?: readonly string[];
  signal?: AbortSignal;
}

/** ListOptions are those of a list that comes in pages. */
export interface ListOptions {
  /** How many items one request asks for. The default is the server's. */
  pageSize?: number;
  signal?: AbortSignal;
}

export async function createChannel(
  caller: Caller,
  channelId: string,
  options: CreateChannelOptions,
): Promise<Channel> {
  const userIds = [...(options.members ?? [])];
  text(["channel_id", channelId]);
  texts("user_ids", userIds);
  const request = { channelId, membersOnly: options.membersOnly ?? false, userIds };
  let attempts = 0;
  try {
    const res = await caller.retry("CreateChannel", options.signal, (rpc, opts) => {
      attempts++;
      return rpc.createChannel(request, opts);
    });
    return toChannel(res.channel);
  } catch (err) {
    if (err instanceof ParleyError && err.reason === "CHANNEL_EXISTS" && attempts > 1) {
      throw err.with({ message: `${err.rawMessage} (an earlier attempt of this call may have made it)` });
    }
    throw err;
  }
}

/** MemberChange makes one request about some of the users. */
type MemberChange = (
  rpc: Rpc,
  request: { channelId: string; userIds: string[] },
  options: CallOptions,
) => Promise<unknown>;

/** changeMembers makes one request per part of the users, at least one: to judge an empty list is for the server. */
async function changeMembers(
  caller: Caller,
  name: string,
  channelId: string,
  users: readonly string[],
  signal: AbortSignal | undefined,
  change: MemberChange,
): Promise<void> {
  text(["channel_id", channelId]);
  texts("user_ids", users);
  let from = 0;
  do {
    const request = { channelId, userIds: users.slice(from, from + maxUsers) };
    await caller.retry(name, signal, (rpc, options) => change(rpc, request, options));
    from += maxUsers;
  } while (from < users.length);
}

export function addMembers(
  caller: Caller,
  channelId: string,
  users: readonly string[],
  signal: AbortSignal | undefined,
): Promise<void> {
  return changeMembers(caller, "AddMembers", channelId, users, signal, (rpc, request, options) =>
    rpc.addMembers(request, options),
  );
}

export function removeMembers(
  caller: Caller,
  channelId: string,
  users: readonly string[],
  signal: AbortSignal | undefined,
): Promise<void> {
  return changeMembers(caller, "RemoveMembers", channelId, users, signal, (rpc, request, options) =>
    rpc.removeMembers(request, options),
  );
}

export async function* members(caller: Caller, channelId: string, options: ListOptions): AsyncGenerator<Member> {
  const { pageSize, signal } = options;
  text(["channel_id", channelId]);
  place("page_size", pageSize);
  let pageToken = "";
  do {
    const request = { channelId, pageSize, pageToken };
    const res = await caller.retry("ListMembers", signal, (rpc, opts) => rpc.listMembers(request, opts));
    for (const member of res.members) {
      yield toMember(member);
    }
    pageToken = res.nextPageToken;
  } while (pageToken !== "");
}

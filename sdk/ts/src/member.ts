import type { CallOptions as RpcOptions } from "@connectrpc/connect";
import { MemberRole } from "@parleyhq/api/parley/v1/channel_pb.js";
import type { Caller } from "./caller.js";
import { safeInteger, text, texts } from "./check.js";
import { toChannel, toMember } from "./convert.js";
import type { Rpc } from "./endpoint.js";
import { invalid } from "./error.js";
import { newId } from "./id.js";
import type { CreatedChannel, Member, NewMember, Retention } from "./message.js";
import type { CallOptions } from "./options.js";
import { fromRetention } from "./settings.js";

/** The maximum number of users per request. */
const maxUsers = 500;

/** CreateChannelOptions are the options of createChannel. */
export interface CreateChannelOptions extends CallOptions {
  /**
   * True if only members and holders of `manage` can use the channel. The default is an open
   * channel.
   */
  membersOnly?: boolean;
  /** How long messages are kept. By default the server's policy applies. */
  retention?: Retention;
  /** The members besides the caller, at most 500. addMembers has no such limit. */
  members?: readonly NewMember[];
  /**
   * Makes the call idempotent, also across restarts of the program: a repeat by the same caller
   * with the same key and the same settings returns the channel instead of CHANNEL_EXISTS. Up to
   * 128 printable ASCII characters without spaces. The default is a new UUIDv7.
   */
  idempotencyKey?: string;
}

/** ListOptions are the options of a list. The time limit applies to each page. */
export interface ListOptions extends CallOptions {
  /** The number of items per request. The default is the server's. */
  pageSize?: number;
}

export async function createChannel(
  caller: Caller,
  channelId: string,
  options: CreateChannelOptions,
): Promise<CreatedChannel> {
  const idempotencyKey = options.idempotencyKey || newId();
  text(["channel_id", channelId], ["idempotency_key", idempotencyKey]);
  const members = toMembers(options.members ?? []);
  const request = {
    channelId,
    membersOnly: options.membersOnly ?? false,
    members,
    idempotencyKey,
    retention: fromRetention(options.retention),
  };
  const res = await caller.retry("CreateChannel", options, (rpc, opts) => rpc.createChannel(request, opts));
  return { ...toChannel(res.channel), duplicate: res.duplicate };
}

/**
 * toMembers converts the users to add. It throws INVALID_FIELD for a user id or a role that cannot
 * be encoded.
 */
function toMembers(users: readonly NewMember[]): { userId: string; role: MemberRole }[] {
  return users.map((user) => {
    const { userId, role } = typeof user === "string" ? { userId: user, role: undefined } : user;
    text(["members", userId]);
    return { userId, role: role === undefined ? MemberRole.UNSPECIFIED : toRole("members", role) };
  });
}

/**
 * changeMembers makes one request for each 500 users, one at a time. An empty list is one request
 * too: the server decides whether it is valid.
 */
async function changeMembers<T>(
  caller: Caller,
  name: string,
  users: readonly T[],
  options: CallOptions,
  change: (rpc: Rpc, part: T[], options: RpcOptions) => Promise<unknown>,
): Promise<void> {
  let from = 0;
  do {
    const part = users.slice(from, from + maxUsers);
    await caller.retry(name, options, (rpc, opts) => change(rpc, part, opts));
    from += maxUsers;
  } while (from < users.length);
}

export async function addMembers(
  caller: Caller,
  channelId: string,
  users: readonly NewMember[],
  options: CallOptions,
): Promise<void> {
  text(["channel_id", channelId]);
  await changeMembers(caller, "AddMembers", toMembers(users), options, (rpc, members, opts) =>
    rpc.addMembers({ channelId, members }, opts),
  );
}

export async function updateMember(
  caller: Caller,
  channelId: string,
  userId: string,
  role: keyof typeof MemberRole,
  options: CallOptions,
): Promise<void> {
  text(["channel_id", channelId], ["user_id", userId]);
  const request = { channelId, userId, role: toRole("role", role) };
  await caller.retry("UpdateMember", options, (rpc, opts) => rpc.updateMember(request, opts));
}

/** toRole converts a role. It throws INVALID_FIELD if there is none of this name. */
function toRole(field: string, role: keyof typeof MemberRole): MemberRole {
  const number = MemberRole[role];
  if (typeof number !== "number") {
    throw invalid(field, `${JSON.stringify(role)} is not a role`);
  }
  return number;
}

export async function removeMembers(
  caller: Caller,
  channelId: string,
  users: readonly string[],
  options: CallOptions,
): Promise<void> {
  text(["channel_id", channelId]);
  texts("user_ids", users);
  await changeMembers(caller, "RemoveMembers", users, options, (rpc, userIds, opts) =>
    rpc.removeMembers({ channelId, userIds }, opts),
  );
}

export async function* members(caller: Caller, channelId: string, options: ListOptions): AsyncGenerator<Member> {
  const { pageSize } = options;
  text(["channel_id", channelId]);
  safeInteger("page_size", pageSize);
  let pageToken = "";
  do {
    const request = { channelId, pageSize, pageToken };
    const res = await caller.retry("ListMembers", options, (rpc, opts) => rpc.listMembers(request, opts));
    for (const member of res.members) {
      yield toMember(member, res.epoch);
    }
    pageToken = res.nextPageToken;
  } while (pageToken !== "");
}

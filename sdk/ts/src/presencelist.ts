import type { Caller } from "./caller.js";
import { safeInteger, texts } from "./check.js";
import type { ListOptions } from "./member.js";
import type { CallOptions } from "./options.js";
import { toUserPresence, type UserPresence } from "./userpresence.js";

/** The maximum number of users per request. */
const maxUsers = 500;

export async function getPresence(
  caller: Caller,
  users: readonly string[],
  options: CallOptions,
): Promise<UserPresence[]> {
  texts("user_ids", users);
  const states: UserPresence[] = [];
  for (let from = 0; from < users.length; from += maxUsers) {
    const request = { userIds: users.slice(from, from + maxUsers) };
    const res = await caller.retry("GetPresence", options, (rpc, opts) => rpc.getPresence(request, opts));
    states.push(...res.presence.map(toUserPresence));
  }
  return states;
}

export async function* onlineUsers(caller: Caller, options: ListOptions): AsyncGenerator<UserPresence> {
  const { pageSize } = options;
  safeInteger("page_size", pageSize);
  let pageToken = "";
  do {
    const request = { pageSize, pageToken };
    const res = await caller.retry("ListOnlineUsers", options, (rpc, opts) => rpc.listOnlineUsers(request, opts));
    yield* res.presence.map(toUserPresence);
    pageToken = res.nextPageToken;
  } while (pageToken !== "");
}

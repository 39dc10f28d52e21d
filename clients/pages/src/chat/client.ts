import { type Client, live } from "@parleyhq/sdk";
import { failure } from "../connection/failure";
import { sdkClient } from "../connection/sdk";
import type { Server } from "../connection/service";
import { channelRights, mayShowPresence } from "../connection/token";
import type { ChatClient, Finding } from "./model/types";

const lookupLimit = 3_000; // milliseconds

/**
 * connect returns a client of the server for the model. It makes no connection before its first
 * call.
 */
export function connect(server: Server): ChatClient {
  const { client, close } = sdkClient(server);
  const can = channelRights(server.token);
  return {
    send: (channelId, content, options) => client.send(channelId, content, options),
    edit: (channelId, msgId, content, options) => client.edit(channelId, msgId, content, options),
    recall: (channelId, msgId, options) => client.recall(channelId, msgId, options),
    history: (channelId, options) => client.history(channelId, options),
    channels: (options) => client.channels(options),
    markRead: (channelId, seq, options) => client.markRead(channelId, seq, options),
    typing: (channelId, options) => client.typing(channelId, options),
    can,
    lookup: async (channelId) => (can("history", channelId) ? await lookup(client, channelId) : { kind: "unknown" }),
    subscribe: (channelIds, onState) => {
      const subscription = client.subscribe(channelIds.map(live), { onState });
      return {
        next: () => subscription.next(),
        add: (channelId) => subscription.add(live(channelId)),
        remove: (channelId) => subscription.remove(channelId),
        close: () => subscription.close(),
      };
    },
    presence: () =>
      mayShowPresence(server.token) ? client.presence({ platform: "WEB", deviceId: crypto.randomUUID() }) : null,
    close,
  };
}

async function lookup(client: Client, channelId: string): Promise<Finding> {
  try {
    const { count, expiredCount } = await client.channel(channelId, { timeout: lookupLimit });
    return { kind: "open", count: count - expiredCount };
  } catch (cause) {
    const { reason } = failure(cause);
    if (reason === "CHANNEL_NOT_FOUND") return { kind: "free" };
    return { kind: reason === "NOT_MEMBER" ? "members" : "unknown" };
  }
}

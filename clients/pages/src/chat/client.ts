import { live } from "@parleyhq/sdk";
import { sdkClient } from "../connection/sdk";
import type { Server } from "../connection/service";
import { mayShowPresence } from "../connection/token";
import type { ChatClient } from "./model/types";

/**
 * connect returns a client of the server for the model. It makes no connection before its first
 * call.
 */
export function connect(server: Server): ChatClient {
  const client = sdkClient(server);
  return {
    send: (channelId, content, options) => client.send(channelId, content, options),
    edit: (channelId, msgId, content, options) => client.edit(channelId, msgId, content, options),
    recall: (channelId, msgId, options) => client.recall(channelId, msgId, options),
    history: (channelId, options) => client.history(channelId, options),
    channels: (options) => client.channels(options),
    markRead: (channelId, seq, options) => client.markRead(channelId, seq, options),
    typing: (channelId, options) => client.typing(channelId, options),
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
    close: () => client.close(),
  };
}

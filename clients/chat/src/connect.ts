import { Client, live } from "@parleyhq/sdk";
import type { ChatClient } from "./model/types";

/** Makes the model's client of the SDK's, for one server and one token. It opens no connection yet. */
export function connect(address: string, token: string): ChatClient {
  const client = new Client(address, { token });
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
    close: () => client.close(),
  };
}

import { live } from "@parleyhq/sdk";
import { sdkClient } from "../connection/sdk";
import type { Server } from "../connection/service";
import { sessionRights } from "../connection/token";
import type { AssistantClient } from "./model/types";

/**
 * connect returns a client of the server for the model. It makes no connection before its first
 * call.
 */
export function connect(server: Server): AssistantClient {
  const { client, close } = sdkClient(server);
  const session = (id: string) => client.session(id);
  return {
    sessions: (options) => client.sessions(options),
    append: (id, content, options) => session(id).append("user", content, options),
    messages: (id, options) => session(id).messages(options),
    edit: (id, msgId, content, options) => session(id).edit(msgId, content, options),
    recall: (id, msgId, options) => session(id).recall(msgId, options),
    cancel: (id, msgId, options) => session(id).cancel(msgId, options),
    markRead: (id, seq, options) => session(id).markRead(seq, options),
    rename: (id, title, options) => session(id).rename(title, options),
    remove: (id, options) => session(id).delete(options),
    subscribe: (onState) => {
      const subscription = client.subscribe([], { onState });
      return {
        next: () => subscription.next(),
        add: (id) => subscription.add(live(session(id).channelId)),
        remove: (id) => subscription.remove(session(id).channelId),
        close: () => subscription.close(),
      };
    },
    can: sessionRights(server.token),
    close,
  };
}

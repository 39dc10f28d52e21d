import { userName } from "../../ui/name";
import type { Chat } from "../model/chat";
import type { Pending } from "../model/outbox";
import { Text } from "./message";

/** PendingRow shows an own message that the server has not confirmed. */
export function PendingRow({ chat, pending }: { chat: Chat; pending: Pending }) {
  const failed = pending.refused !== "";
  return (
    <article
      class="row pending"
      data-testid="pending"
      data-client-msg-id={pending.clientMsgId}
      data-status={failed ? "failed" : "sending"}
      data-own
      aria-label={failed ? "Not sent" : "Sending"}
    >
      <span class="gutter" aria-hidden="true">
        {failed ? <span class="failed-mark">!</span> : <span class="sending-mark" />}
      </span>
      <div class="body">
        <div class="content" dir="auto">
          {pending.type === "action" && <b class="sender">{userName(chat.me)} </b>}
          <span data-testid="content">
            <Text text={pending.content} />
          </span>
        </div>
        {failed && (
          <p class="refused" role="alert">
            Not sent: {pending.refused}{" "}
            {!pending.final && chat.canWrite(pending.channelId) && (
              <button type="button" class="link" data-testid="retry" onClick={() => chat.retry(pending)}>
                Send again
              </button>
            )}{" "}
            <button type="button" class="link" data-testid="discard" onClick={() => chat.discard(pending)}>
              Discard
            </button>
          </p>
        )}
      </div>
    </article>
  );
}

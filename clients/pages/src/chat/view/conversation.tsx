import { Banner, LinkButton } from "../../ui/banner";
import { ConnectionBanner } from "../../ui/connectionbanner";
import { Empty } from "../../ui/empty";
import { Pane, PaneHead } from "../../ui/frame";
import type { Chat } from "../model/chat";
import type { Conversation } from "../model/conversation";
import { go, session } from "../session";
import { Composer } from "./composer";
import { MessageLog } from "./log";
import { MemberMenu } from "./members";
import { RecallDialog } from "./recall";

/** ConversationPane shows the open channel, or a hint if none is open. */
export function ConversationPane({ chat, conversation }: { chat: Chat; conversation: Conversation | null }) {
  return (
    <Pane>
      <ConnectionBanner
        session={session}
        connection={chat.connection}
        offline="Messages that you write are kept, and sent when the connection is back."
        capability="subscribe"
        retry={() => session.reopen()}
      />
      {conversation ? (
        <OpenConversation key={conversation.id} chat={chat} conversation={conversation} />
      ) : (
        <NoChannel />
      )}
      <RecallDialog chat={chat} />
    </Pane>
  );
}

function OpenConversation({ chat, conversation }: { chat: Chat; conversation: Conversation }) {
  const { error, loaded } = conversation.view.value;
  const lost = chat.channels.list.value.find((c) => c.id === conversation.id)?.lost ?? "";
  const title = (
    <>
      <span class="hash" aria-hidden="true">
        #
      </span>
      {conversation.id}
    </>
  );
  const again = <LinkButton act={() => void conversation.loadNewest()}>Try again</LinkButton>;
  return (
    <>
      <PaneHead title={title} back={{ label: "Back to the channels", act: () => go(null) }}>
        {!lost && <MemberMenu chat={chat} channelId={conversation.id} />}
      </PaneHead>
      {(lost || error) && (
        <Banner kind="warn" testid="channel-error" alert actions={!lost && again}>
          {lost || error}
        </Banner>
      )}
      <div class="log-area" data-lost={lost !== ""} data-loaded={loaded}>
        <MessageLog chat={chat} conversation={conversation} />
      </div>
      <Composer chat={chat} conversation={conversation} disabled={lost !== ""} />
    </>
  );
}

function NoChannel() {
  return (
    <Empty icon="bubbles" title="Choose a channel">
      Or enter a name in the field above the list: <kbd>Ctrl</kbd>+<kbd>K</kbd>
    </Empty>
  );
}

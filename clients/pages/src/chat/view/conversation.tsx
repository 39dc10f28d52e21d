import { Banner, LinkButton } from "../../ui/banner";
import { ConnectionBanner } from "../../ui/connectionbanner";
import { Empty } from "../../ui/empty";
import { Pane, PaneHead } from "../../ui/frame";
import type { Chat } from "../model/chat";
import type { Conversation } from "../model/conversation";
import { go, session } from "../session";
import { ChannelName } from "./channelname";
import { Composer, NoComposer } from "./composer";
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
  const { id } = conversation;
  const { lost = "", membersOnly = false } = chat.channels.list.value.find((c) => c.id === id) ?? {};
  const title = <ChannelName id={id} membersOnly={membersOnly} />;
  const missing = restriction(chat, id);
  const again = <LinkButton act={() => void conversation.loadNewest()}>Try again</LinkButton>;
  return (
    <>
      <PaneHead title={title} back={{ label: "Back to the channels", act: () => go(null) }}>
        {!lost && <MemberMenu chat={chat} channelId={id} />}
      </PaneHead>
      {(lost || error) && (
        <Banner kind="warn" testid="channel-error" alert actions={!lost && again}>
          {lost || error}
        </Banner>
      )}
      {!lost && missing && (
        <Banner
          kind="warn"
          testid="restricted"
          actions={
            chat.can("history", id) && (
              <LinkButton testid="load-newest" act={() => void conversation.loadNewest()}>
                Load new messages
              </LinkButton>
            )
          }
        >
          {missing}
        </Banner>
      )}
      <div class="log-area" data-lost={lost !== ""} data-loaded={loaded}>
        <MessageLog chat={chat} conversation={conversation} />
      </div>
      {chat.canWrite(id) ? (
        <Composer chat={chat} conversation={conversation} />
      ) : (
        <NoComposer chat={chat} conversation={conversation} lost={lost !== ""} />
      )}
    </>
  );
}

// What the token does not allow the user to read. Empty if they can read everything.
function restriction(chat: Chat, id: string): string {
  const [history, live] = [chat.can("history", id), chat.can("subscribe", id)];
  if (history && live) return "";
  if (history) return "Your token does not show new messages on their own here: it lacks the action subscribe.";
  if (live) return "Your token shows only new messages here: it lacks the action history.";
  if (chat.can("send", id)) {
    return "You can write here, but your token does not allow you to read: it lacks the actions history and subscribe.";
  }
  return "Your token does not allow anything in this channel.";
}

function NoChannel() {
  return (
    <Empty icon="bubbles" title="Choose a channel">
      Or enter a name in the field above the list: <kbd>Ctrl</kbd>+<kbd>K</kbd>
    </Empty>
  );
}

import { Icon } from "../../ui/icon";
import { KeepToken } from "../../ui/keeptoken";
import { Offer } from "../../ui/offer";
import { TokenForm } from "../../ui/tokenform";
import type { Chat } from "../model/chat";
import type { Conversation } from "../model/conversation";
import { answerOffer, go, offered, signIn, signInAgain, tokenReason } from "../session";
import { Composer } from "./composer";
import { MessageLog } from "./log";
import { RecallQuestion } from "./recall";

/** The open channel, or what there is to do while none is open. */
export function ConversationPane({ chat, conversation }: { chat: Chat; conversation: Conversation | null }) {
  return (
    <main class="pane">
      <Banner chat={chat} />
      {conversation ? <Open key={conversation.id} chat={chat} conversation={conversation} /> : <Nothing />}
      <RecallQuestion chat={chat} />
    </main>
  );
}

function Open({ chat, conversation }: { chat: Chat; conversation: Conversation }) {
  const { error, loaded } = conversation.view.value;
  const lost = chat.channels.list.value.find((c) => c.id === conversation.id)?.lost ?? "";
  return (
    <>
      <header class="pane-head">
        <button
          type="button"
          class="icon-button back"
          data-testid="back"
          aria-label="Back to the channels"
          onClick={() => go(null)}
        >
          <Icon name="back" />
        </button>
        <h1 data-testid="title">
          <span class="hash" aria-hidden="true">
            #
          </span>
          {conversation.id}
        </h1>
      </header>
      {(lost || error) && (
        <div class="strip warn" role="alert" data-testid="channel-error">
          <span>{lost || error}</span>
          {!lost && (
            <button type="button" class="link" onClick={() => void conversation.loadNewest()}>
              Try again
            </button>
          )}
        </div>
      )}
      <div class="log-area" data-lost={lost !== ""} data-loaded={loaded}>
        <MessageLog chat={chat} conversation={conversation} />
      </div>
      <Composer chat={chat} conversation={conversation} disabled={lost !== ""} />
    </>
  );
}

function Nothing() {
  return (
    <div class="nothing">
      <div class="welcome-mark">
        <Icon name="bubbles" />
      </div>
      <h1>Pick a channel</h1>
      <p>
        Or type a name in the field above the list: <kbd>Ctrl</kbd>+<kbd>K</kbd>
      </p>
    </div>
  );
}

// What keeps the user from chatting at all.
function Banner({ chat }: { chat: Chat }) {
  const { state, reason, token } = chat.connection.value;
  if (offered.value) return <Offer me={chat.me} user={offered.value.user} answer={answerOffer} />;
  if (token) {
    return (
      <div class="strip bad">
        <TokenForm reason={`${reason} Paste another one to go on.`} enter={signIn} />
      </div>
    );
  }
  if (tokenReason.value) return <KeepToken me={chat.me} reason={tokenReason} enter={signIn} />;
  if (state === "ended") {
    return (
      <div class="strip bad" role="alert">
        <span>Disconnected: {reason}</span>
        <button type="button" class="link" onClick={signInAgain}>
          Connect again
        </button>
      </div>
    );
  }
  if (state === "waiting") {
    return <div class="strip warn">Not connected. What you write is kept, and sent when the connection is back.</div>;
  }
  return null;
}

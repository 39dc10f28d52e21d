import { Banner } from "../../ui/banner";
import { ConnectionBanner } from "../../ui/connectionbanner";
import { Empty } from "../../ui/empty";
import { Pane, PaneHead } from "../../ui/frame";
import { Icon } from "../../ui/icon";
import type { Assistant } from "../model/assistant";
import type { Conversation } from "../model/conversation";
import { go, session } from "../session";
import { Composer } from "./composer";
import { Transcript } from "./transcript";
import { question } from "./ui";

/** ConversationPane shows the open conversation, or the beginning of a new one. */
export function ConversationPane({ assistant }: { assistant: Assistant }) {
  const conversation = assistant.open.value;
  return (
    <Pane>
      <ConnectionBanner
        session={session}
        connection={assistant.connection}
        offline="What you write is sent when the connection is back."
        capability="session:*"
        retry={() => session.reopen()}
      />
      {conversation ? (
        <OpenConversation key={conversation.id} assistant={assistant} conversation={conversation} />
      ) : (
        <NewConversation assistant={assistant} />
      )}
    </Pane>
  );
}

const back = { label: "Back to the conversations", act: () => go({ show: "list" }) };

function OpenConversation({ assistant, conversation }: { assistant: Assistant; conversation: Conversation }) {
  const { id } = conversation;
  const { error } = conversation.view.value;
  const known = assistant.sessions.list.value.find((s) => s.id === id);
  const title = known?.title || "Untitled";
  const ask = (kind: "rename" | "delete") => {
    question.value = { kind, id, title: known?.title ?? "" };
  };
  return (
    <>
      <PaneHead title={<span dir="auto">{known || !error ? title : "Conversation"}</span>} back={back}>
        {known && assistant.canWrite(id) && (
          <div class="controls">
            <button
              type="button"
              class="icon-button"
              data-testid="rename"
              aria-label="Rename the conversation"
              title="Rename"
              onClick={() => ask("rename")}
            >
              <Icon name="edit" />
            </button>
            <button
              type="button"
              class="icon-button"
              data-testid="delete"
              aria-label="Delete the conversation"
              title="Delete"
              onClick={() => ask("delete")}
            >
              <Icon name="delete" />
            </button>
          </div>
        )}
      </PaneHead>
      {error && (
        <Banner kind="warn" testid="session-error" alert>
          {error}
        </Banner>
      )}
      <Transcript assistant={assistant} conversation={conversation} />
      {!error && <Composer key={id} assistant={assistant} conversation={conversation} />}
    </>
  );
}

function NewConversation({ assistant }: { assistant: Assistant }) {
  return (
    <>
      <PaneHead title="New conversation" back={back} />
      <Empty icon="spark" title="Ask something">
        The answer appears here while it is written. Your conversations are kept, and you can continue them on any
        device.
      </Empty>
      <Composer key="new" assistant={assistant} conversation={null} />
    </>
  );
}

import { useEffect } from "preact/hooks";
import { requiresUser } from "../../ui/connectionbanner";
import { Frame } from "../../ui/frame";
import { Welcome } from "../../ui/tokenform";
import type { Assistant } from "../model/assistant";
import { go, route, session } from "../session";
import { ConversationPane } from "./conversation";
import { Dialogs } from "./dialogs";
import { SessionList } from "./sidebar";

/** App is the page: the list of conversations and the open one, or the form for a token. */
export function App() {
  const assistant = session.page;
  if (!assistant) {
    return (
      <Welcome session={session} icon="spark" title="Assistant">
        Paste a token with the capability <code>session:*</code>. <code>parley token --help</code> shows how to get one.
      </Welcome>
    );
  }
  return <SignedIn key={assistant} assistant={assistant} />;
}

function SignedIn({ assistant }: { assistant: Assistant }) {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => shortcut(assistant, event);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [assistant]);
  return (
    <Frame page="assistant" open={route.value.show !== "list" || requiresUser(session, assistant.connection)}>
      <SessionList assistant={assistant} />
      <ConversationPane assistant={assistant} />
      <Dialogs assistant={assistant} />
    </Frame>
  );
}

// Alt with an arrow leads to the previous and the next conversation.
function shortcut(assistant: Assistant, event: KeyboardEvent): void {
  const step = event.altKey && !event.ctrlKey ? { ArrowUp: -1, ArrowDown: 1 }[event.key] : undefined;
  if (step === undefined) return;
  event.preventDefault();
  const ids = assistant.sessions.list.value.map((s) => s.id);
  const at = ids.indexOf(assistant.open.value?.id ?? "");
  const next = at < 0 ? ids[0] : ids[Math.min(ids.length - 1, Math.max(0, at + step))];
  if (next !== undefined) go({ show: "session", id: next });
}

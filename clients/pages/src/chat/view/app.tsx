import { useEffect } from "preact/hooks";
import { requiresUser } from "../../ui/connectionbanner";
import { Frame } from "../../ui/frame";
import { Welcome } from "../../ui/tokenform";
import type { Chat } from "../model/chat";
import { go, session } from "../session";
import { ConversationPane } from "./conversation";
import { ChannelList } from "./sidebar";

/** App is the page: the list of channels and the open channel, or the form for a token. */
export function App() {
  const chat = session.page;
  if (!chat) {
    return (
      <Welcome session={session} icon="bubbles" title="Welcome to Parley">
        Paste a token. <code>parleyd dev</code> prints one, and an address that contains it.
      </Welcome>
    );
  }
  return <SignedIn key={chat} chat={chat} />;
}

function SignedIn({ chat }: { chat: Chat }) {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => shortcut(chat, event);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [chat]);
  const open = chat.open.value;
  return (
    <Frame page="chat" open={open !== null || requiresUser(session, chat.connection)}>
      <ChannelList chat={chat} />
      <ConversationPane chat={chat} conversation={open} />
    </Frame>
  );
}

function shortcut(chat: Chat, event: KeyboardEvent): void {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    document.querySelector<HTMLInputElement>("[data-testid=channel-name]")?.focus();
    return;
  }
  const step = event.altKey && !event.ctrlKey ? { ArrowUp: -1, ArrowDown: 1 }[event.key] : undefined;
  if (step === undefined) return;
  event.preventDefault();
  const ids = chat.channels.list.value.map((c) => c.id);
  const at = ids.indexOf(chat.open.value?.id ?? "");
  const next = at < 0 ? ids[0] : ids[Math.min(ids.length - 1, Math.max(0, at + step))];
  if (next !== undefined) go(next);
}

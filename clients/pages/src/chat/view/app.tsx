import { useEffect } from "preact/hooks";
import { Icon } from "../../ui/icon";
import { TokenForm } from "../../ui/tokenform";
import type { Chat } from "../model/chat";
import { chat, go, signIn, tokenReason } from "../session";
import { ConversationPane } from "./conversation";
import { Sidebar } from "./sidebar";

/** The page: the list of channels and the open one, or the question for a token. */
export function App() {
  const current = chat.value;
  if (!current) {
    return (
      <main class="welcome">
        <TokenForm reason={tokenReason.value} enter={signIn}>
          <div class="welcome-mark">
            <Icon name="bubbles" />
          </div>
          <h1>Welcome to Parley</h1>
          <p>
            Paste the token that your server gave you. <code>parleyd dev</code> prints one, and an address that holds
            it.
          </p>
        </TokenForm>
      </main>
    );
  }
  return <Chatting key={current} chat={current} />;
}

function Chatting({ chat }: { chat: Chat }) {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => shortcut(chat, event);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [chat]);
  const open = chat.open.value;
  return (
    <div class="page" data-open={open !== null}>
      <Sidebar chat={chat} />
      <ConversationPane chat={chat} conversation={open} />
    </div>
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

import { useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { Icon } from "../../ui/icon";
import type { Chat } from "../model/chat";
import type { Conversation } from "../model/conversation";
import { ChunkRows } from "./chunk";
import { PendingRow } from "./pending";
import { Scroll } from "./scroll";

/**
 * MessageLog shows the messages of a conversation. Only those near the viewport are in the
 * document.
 */
export function MessageLog({ chat, conversation }: { chat: Chat; conversation: Conversation }) {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  const box = useRef<HTMLElement>(null);
  const placed = useRef(false);
  const scroll = useMemo(() => new Scroll(conversation, () => draw(undefined)), [conversation]);
  const view = conversation.view.value;
  const pending = chat.pending.value;
  const span = scroll.plan(view.chunks);
  const drawn = view.chunks.slice(span.first, span.end);

  useLayoutEffect(() => (box.current ? scroll.attach(box.current) : undefined), [scroll]);
  useLayoutEffect(() => {
    if (view.loaded && !placed.current) {
      placed.current = true;
      scroll.toElement(box.current?.querySelector(".divider") ?? null);
    }
    scroll.planned();
  });
  // Scrolls to a message that the user has just written.
  const newest = pending.at(-1)?.place ?? -1;
  const written = useRef(newest);
  useLayoutEffect(() => {
    if (newest > written.current) scroll.toBottom();
    written.current = Math.max(newest, written.current);
  }, [newest, scroll]);
  useWatching(chat, scroll, view.loaded);
  // Without smooth scrolling, which would stop short if the heights of new rows differ from the
  // estimates.
  const onKeyDown = (event: KeyboardEvent) => {
    const go = event.target === box.current && { Home: () => scroll.toTop(), End: () => scroll.toBottom() }[event.key];
    if (!go) return;
    event.preventDefault();
    go();
  };

  return (
    <div class="log-frame">
      <section
        ref={box}
        class="log"
        data-testid="messages"
        data-start={view.atStart}
        data-end={view.atEnd}
        data-loading={view.loading !== null}
        role="log"
        aria-label={`Messages of ${conversation.id}`}
        aria-live={scroll.bottom ? "polite" : "off"}
        aria-busy={view.loading !== null}
        onKeyDown={onKeyDown}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: keyboard users scroll it
        tabIndex={0}
      >
        <div class="log-inner">
          <LogTop chat={chat} conversation={conversation} />
          <div style={{ height: `${span.above}px` }} />
          {drawn.map((chunk, i) => {
            const before = view.chunks[span.first + i - 1];
            const previous = before?.messages.at(-1);
            const cut = view.divider !== null && dividerIn(view.divider, chunk.messages, previous?.seq ?? 0);
            return (
              <ChunkRows
                key={chunk.index}
                chat={chat}
                chunk={chunk}
                previous={previous}
                divider={cut ? view.divider : null}
              />
            );
          })}
          <div style={{ height: `${span.below}px` }} />
          {scroll.tail && pending.map((p) => <PendingRow key={p.clientMsgId} chat={chat} pending={p} />)}
        </div>
      </section>
      {!scroll.bottom && view.loaded && <Jump chat={chat} conversation={conversation} jump={() => scroll.toBottom()} />}
    </div>
  );
}

function dividerIn(divider: number, messages: readonly { seq: number }[], before: number): boolean {
  return before <= divider && (messages.at(-1)?.seq ?? 0) > divider;
}

function LogTop({ chat, conversation }: { chat: Chat; conversation: Conversation }) {
  const { loaded, loading, error, atStart, chunks } = conversation.view.value;
  if (error && !loaded) return null;
  if (!loaded || loading === "older") {
    return (
      <div class="log-top">
        <span class="spinner" aria-hidden="true" /> Loading messages…
      </div>
    );
  }
  if (!atStart) return <div class="log-top" />;
  return (
    <div class="log-top start">
      <h2>#{conversation.id}</h2>
      {!chat.can("history", conversation.id) ? (
        <p>Earlier messages are not shown.</p>
      ) : chunks.length > 0 ? (
        <p>This is where the channel begins.</p>
      ) : (
        <NothingYet chat={chat} id={conversation.id} />
      )}
    </div>
  );
}

// A channel without messages. If it does not exist, its first message creates it.
function NothingYet({ chat, id }: { chat: Chat; id: string }) {
  const [absent, setAbsent] = useState(false);
  useEffect(() => {
    void chat.absent(id).then(setAbsent);
  }, [chat, id]);
  const writes = chat.canWrite(id);
  if (absent) {
    return (
      <p data-testid="absent">There is no channel with this name yet.{writes && " Your first message creates it."}</p>
    );
  }
  return <p>{writes ? "Nothing here yet. Say hello." : "Nothing here yet."}</p>;
}

function Jump({ chat, conversation, jump }: { chat: Chat; conversation: Conversation; jump: () => void }) {
  const unread = useComputed(() => chat.channels.list.value.find((c) => c.id === conversation.id)?.unread ?? 0).value;
  const words = unread === 0 ? "Newest messages" : `${unread} new message${unread === 1 ? "" : "s"}`;
  return (
    <button type="button" class="jump" data-testid="jump" data-unread={unread > 0} onClick={jump}>
      <Icon name="down" />
      {words}
    </button>
  );
}

// Runs after the document is drawn: only then it is known which messages are visible.
function useWatching(chat: Chat, scroll: Scroll, loaded: boolean): void {
  const { bottom } = scroll;
  useEffect(() => {
    const tell = () => chat.watch(bottom && scroll.bottom && loaded && !document.hidden);
    tell();
    document.addEventListener("visibilitychange", tell);
    return () => {
      document.removeEventListener("visibilitychange", tell);
      chat.watch(false);
    };
  }, [chat, scroll, bottom, loaded]);
}

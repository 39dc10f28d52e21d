import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { Icon } from "../../ui/icon";
import type { Assistant } from "../model/assistant";
import type { Conversation, ConversationView } from "../model/conversation";
import { EntryRow, PendingPrompt } from "./entry";
import { Scroll } from "./scroll";

/** Transcript shows the messages of a conversation. */
export function Transcript({ assistant, conversation }: { assistant: Assistant; conversation: Conversation }) {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  const box = useRef<HTMLElement>(null);
  const scroll = useMemo(() => new Scroll(() => draw(undefined)), []);
  const view = conversation.view.value;
  useLayoutEffect(
    () => (box.current ? scroll.attach(box.current, () => void conversation.loadOlder()) : undefined),
    [],
  );
  useLayoutEffect(() => scroll.drawn(view.entries[0]?.message.msgId));
  // Scrolls to a prompt that the user has just written.
  const written = view.pending?.clientMsgId;
  useLayoutEffect(() => {
    if (written !== undefined) scroll.toBottom();
  }, [written]);
  useWatching(assistant, scroll, view.loaded);
  const onKeyDown = (event: KeyboardEvent) => {
    const go = event.target === box.current && { Home: () => scroll.toTop(), End: () => scroll.toBottom() }[event.key];
    if (!go) return;
    event.preventDefault();
    go();
  };
  const last = view.entries.at(-1);
  return (
    <div class="transcript-frame">
      <section
        ref={box}
        class="transcript"
        data-testid="transcript"
        data-start={view.atStart}
        data-loaded={view.loaded}
        role="log"
        aria-label="Messages"
        // A growing answer would be read out again and again. Progress reads out what matters.
        aria-live="off"
        aria-busy={view.answer !== null}
        onKeyDown={onKeyDown}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: keyboard users scroll it
        tabIndex={0}
      >
        <div class="transcript-inner">
          {!view.error && (!view.loaded ? !view.pending : view.loading || !view.atStart) && (
            <p class="transcript-top">
              {view.loading || !view.loaded ? (
                <>
                  <span class="spinner" aria-hidden="true" /> Loading messages…
                </>
              ) : (
                "\u00a0"
              )}
            </p>
          )}
          {view.entries.map((entry) => (
            <EntryRow key={entry.message.msgId} assistant={assistant} entry={entry} last={entry === last} />
          ))}
          {view.pending && (
            <PendingPrompt key={view.pending.clientMsgId} assistant={assistant} pending={view.pending} />
          )}
          <Waiting key={view.unanswered?.changedSeq ?? 0} view={view} />
        </div>
      </section>
      <Progress view={view} />
      {!scroll.bottom && view.loaded && (
        <button type="button" class="jump" data-testid="jump" onClick={() => scroll.toBottom()}>
          <Icon name="down" />
          Newest messages
        </button>
      )}
    </div>
  );
}

/** The time after which the page says that no answer has come, in milliseconds. */
const patience = 20_000;

function Waiting({ view }: { view: ConversationView }) {
  const waits = view.unanswered !== null && !view.pending && view.loaded;
  const [late, setLate] = useState(false);
  useEffect(() => {
    if (!waits) return;
    const timer = setTimeout(() => setLate(true), patience);
    return () => clearTimeout(timer);
  }, [waits]);
  if (!waits) return null;
  return (
    <p class="waiting" data-testid="waiting" data-late={late}>
      {late ? (
        "No answer yet. Is an assistant running?"
      ) : (
        <>
          <span class="dots" aria-hidden="true">
            <i />
            <i />
            <i />
          </span>
          <span class="hidden">Waiting for the assistant</span>
        </>
      )}
    </p>
  );
}

const ends: Partial<Record<string, string>> = {
  sent: "The answer is complete.",
  cancelled: "The answer was stopped.",
  failed: "The answer is incomplete.",
};

// Reads out the beginning and the end of an answer.
function Progress({ view }: { view: ConversationView }) {
  const [words, setWords] = useState("");
  const answering = useRef<string | null>(null);
  useEffect(() => {
    const before = answering.current;
    const now = view.answer?.msgId ?? null;
    answering.current = now;
    if (now !== null && now !== before) setWords("The assistant is answering.");
    if (now !== null || before === null) return;
    const ended = view.entries.find(({ message }) => message.msgId === before);
    setWords(ends[ended?.message.status ?? ""] ?? "");
  }, [view]);
  return (
    <p class="hidden" role="status" data-testid="progress">
      {words}
    </p>
  );
}

// Runs after the document is drawn: only then it is known which messages are visible.
function useWatching(assistant: Assistant, scroll: Scroll, loaded: boolean): void {
  const { bottom } = scroll;
  useEffect(() => {
    const tell = () => assistant.watch(bottom && scroll.bottom && loaded && !document.hidden);
    tell();
    document.addEventListener("visibilitychange", tell);
    return () => {
      document.removeEventListener("visibilitychange", tell);
      assistant.watch(false);
    };
  }, [assistant, scroll, bottom, loaded]);
}

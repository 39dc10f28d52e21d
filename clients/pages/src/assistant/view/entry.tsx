import { useMemo, useState } from "preact/hooks";
import { LinkButton } from "../../ui/banner";
import { CopyButton } from "../../ui/copy";
import { TextEditor } from "../../ui/editor";
import { dayAndTime, timeOfDay } from "../../ui/format";
import { Icon } from "../../ui/icon";
import type { Assistant } from "../model/assistant";
import type { Entry, Pending } from "../model/conversation";
import type { Message } from "../model/types";
import { Prose } from "./prose";
import { editing, focusComposer, maxBytes, question, stopEditing } from "./ui";

const speakers: Partial<Record<string, string>> = {
  user: "You",
  assistant: "Assistant",
  system: "System",
  tool: "Tool",
};

/** EntryRow shows one message. last is true for the newest one. */
export function EntryRow({ assistant, entry, last }: { assistant: Assistant; entry: Entry; last: boolean }) {
  const { message } = entry;
  const edits = message.type === "user" && editing.value?.msgId === message.msgId;
  return useMemo(() => {
    const { type, status, time } = message;
    return (
      <article
        class="entry"
        data-testid="entry"
        data-msg-id={message.msgId}
        data-role={type}
        data-status={status}
        aria-label={`${speakers[type] ?? type}, ${timeOfDay(time)}`}
      >
        {edits ? (
          <Editor assistant={assistant} prompt={message} />
        ) : type === "user" ? (
          <Prompt assistant={assistant} message={message} />
        ) : type === "assistant" ? (
          <Answer assistant={assistant} entry={entry} last={last} />
        ) : (
          <details class="aside">
            <summary>{speakers[type] ?? type}</summary>
            <div data-testid="content" class="plain" dir="auto">
              {entry.text}
            </div>
          </details>
        )}
      </article>
    );
  }, [entry, last, edits]);
}

function Prompt({ assistant, message }: { assistant: Assistant; message: Message }) {
  return (
    <div class="prompt">
      <div class="bubble plain" data-testid="content" dir="auto">
        {message.content}
      </div>
      <div class="tools">
        <time dateTime={message.time.toISOString()} title={dayAndTime(message.time)}>
          {message.status === "edited" && "edited · "}
          {timeOfDay(message.time)}
        </time>
        <CopyButton label="Copy the message" testid="copy" text={() => message.content} />
        {message.fromId === assistant.me && assistant.canWrite(assistant.open.value?.id ?? null) && (
          <button
            type="button"
            class="icon-button"
            data-testid="edit"
            aria-label="Edit the message and ask again"
            title="Edit and ask again"
            onClick={() => {
              editing.value = message;
            }}
          >
            <Icon name="edit" />
          </button>
        )}
      </div>
    </div>
  );
}

const notes: Partial<Record<string, string>> = {
  cancelled: "This answer was stopped.",
  failed: "This answer is incomplete: its generation failed.",
};

function Answer({ assistant, entry, last }: { assistant: Assistant; entry: Entry; last: boolean }) {
  const { message, text } = entry;
  const open = message.status === "open";
  return (
    <div class="answer">
      <div data-testid="content" data-open={open}>
        {text === "" && open ? (
          <span class="dots" aria-hidden="true">
            <i />
            <i />
            <i />
          </span>
        ) : (
          <Prose text={text} />
        )}
      </div>
      {notes[message.status] && (
        <p class="note" data-testid="note">
          {notes[message.status]}
        </p>
      )}
      {!open && (
        <div class="tools">
          <CopyButton label="Copy the answer" testid="copy" text={() => text} />
          {last && <Again assistant={assistant} />}
          <time dateTime={message.time.toISOString()} title={dayAndTime(message.time)}>
            {timeOfDay(message.time)}
          </time>
        </div>
      )}
    </div>
  );
}

function Again({ assistant }: { assistant: Assistant }) {
  const [busy, setBusy] = useState(false);
  const conversation = assistant.open.value;
  const prompt = conversation?.lastPrompt();
  if (!prompt || prompt.fromId !== assistant.me || !assistant.canWrite(conversation?.id ?? null)) return null;
  const again = async () => {
    setBusy(true);
    await assistant.askAgain(prompt, prompt.content);
    setBusy(false);
    focusComposer();
  };
  return (
    <button
      type="button"
      class="icon-button"
      data-testid="regenerate"
      aria-label="Replace the answer by a new one"
      title="New answer"
      disabled={busy}
      onClick={() => void again()}
    >
      <Icon name="again" />
    </button>
  );
}

// Edits a prompt. Messages of the user after it are deleted only after they confirm it.
function Editor({ assistant, prompt }: { assistant: Assistant; prompt: Message }) {
  const save = async (text: string) => {
    const later = assistant.open.value?.after(prompt.seq).filter((m) => m.type === "user").length ?? 0;
    if (later > 0) {
      question.value = { kind: "again", prompt, text, later };
      return;
    }
    const saved = await assistant.askAgain(prompt, text);
    if (saved && editing.value?.msgId === prompt.msgId) stopEditing();
  };
  return (
    <TextEditor
      content={prompt.content}
      maxBytes={maxBytes}
      action="Ask again"
      busy="Asking…"
      save={save}
      cancel={stopEditing}
    />
  );
}

/** PendingPrompt shows a prompt that the server has not confirmed. */
export function PendingPrompt({ assistant, pending }: { assistant: Assistant; pending: Pending }) {
  const failed = pending.refused !== "";
  return (
    <article
      class="entry"
      data-testid="pending"
      data-role="user"
      data-status={failed ? "failed" : "sending"}
      aria-label={failed ? "You, not sent" : "You, sending"}
    >
      <div class="prompt pending">
        <div class="bubble plain" data-testid="content" dir="auto">
          {pending.content}
        </div>
        {failed && (
          <p class="refused" role="alert">
            Not sent: {pending.refused}{" "}
            <LinkButton testid="retry-prompt" act={() => assistant.retry()}>
              Try again
            </LinkButton>{" "}
            <LinkButton testid="discard" act={() => void assistant.discard()}>
              Discard
            </LinkButton>
          </p>
        )}
      </div>
    </article>
  );
}

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { store, stored } from "../../connection/storage";
import { bytes, fit, sends } from "../../ui/field";
import { Icon } from "../../ui/icon";
import type { Assistant } from "../model/assistant";
import type { Conversation } from "../model/conversation";
import { go } from "../session";
import { editing, maxBytes } from "./ui";

/**
 * Composer is the field for a prompt. While an answer is being generated, its button stops it. It
 * keeps an unsent text per conversation, also over a reload.
 */
export function Composer({ assistant, conversation }: { assistant: Assistant; conversation: Conversation | null }) {
  const key = `parley.prompt-draft/${encodeURIComponent(assistant.me)}/${conversation?.id ?? ""}`;
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(() => stored("sessionStorage", key) ?? "");
  const view = conversation?.view.value;
  const answer = view?.answer ?? null;
  const long = text.length > maxBytes / 3 && bytes(text) > maxBytes;
  const valid = text.trim() !== "" && !long && !view?.pending && !answer;
  useLayoutEffect(() => {
    if (field.current) fit(field.current);
  }, [text]);
  // On a touch screen the focus would open the keyboard.
  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) field.current?.focus();
  }, []);
  const change = (next: string) => {
    setText(next);
    store("sessionStorage", key, next);
  };
  const send = () => {
    if (valid) {
      const id = assistant.ask(text);
      change("");
      if (id !== null) go({ show: "session", id });
    }
    field.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (sends(event)) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape") {
      void assistant.stop();
    } else if (event.key === "ArrowUp" && !event.altKey && text === "") {
      const last = conversation?.lastPrompt();
      if (!last) return;
      event.preventDefault();
      editing.value = last;
    }
  };
  if (!assistant.canWrite(conversation?.id ?? null)) {
    return (
      <footer class="composer">
        <p class="no-composer" data-testid="no-composer">
          You can't write here: your token lacks the action append on sessions.
        </p>
      </footer>
    );
  }
  return (
    <footer class="composer">
      <Notice assistant={assistant} />
      <div class="composer-row">
        <textarea
          ref={field}
          data-testid="composer"
          aria-label="Message to the assistant"
          placeholder="Ask the assistant"
          dir="auto"
          rows={1}
          enterkeyhint="send"
          value={text}
          onInput={(event) => change(event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
        {answer ? (
          <button
            type="button"
            class="send stop"
            data-testid="stop"
            aria-label="Stop the answer"
            title="Stop the answer (Esc)"
            disabled={assistant.stopping.value.has(answer.msgId)}
            onClick={() => {
              void assistant.stop();
              field.current?.focus();
            }}
          >
            <Icon name="stop" />
          </button>
        ) : (
          <button type="button" class="send" data-testid="send" aria-label="Send" disabled={!valid} onClick={send}>
            <Icon name="send" />
          </button>
        )}
      </div>
      {long && (
        <p class="refused" role="alert">
          Too long: {bytes(text).toLocaleString()} of {maxBytes.toLocaleString()} bytes.
        </p>
      )}
    </footer>
  );
}

function Notice({ assistant }: { assistant: Assistant }) {
  const text = assistant.notice.value;
  if (!text) return null;
  const dismiss = () => {
    assistant.notice.value = "";
  };
  return (
    <p class="notice" role="alert" data-testid="notice">
      {text}{" "}
      <button type="button" class="link" onClick={dismiss}>
        Dismiss
      </button>
    </p>
  );
}

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { store, stored } from "../../connection/storage";
import { bytes, fit, sends } from "../../ui/field";
import { Icon } from "../../ui/icon";
import { userName } from "../../ui/name";
import type { Chat } from "../model/chat";
import type { Conversation } from "../model/conversation";
import { editing, maxBytes } from "./ui";

/**
 * Composer is the field for a new message. It keeps an unsent text per channel, also over a reload.
 */
export function Composer({ chat, conversation }: { chat: Chat; conversation: Conversation }) {
  const key = `parley.draft/${encodeURIComponent(chat.me)}/${conversation.id}`;
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(() => stored("sessionStorage", key) ?? "");
  const long = text.length > maxBytes / 3 && bytes(text) > maxBytes;
  const valid = text.trim() !== "" && !long;
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
      chat.send(text);
      change("");
    }
    field.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (sends(event)) {
      event.preventDefault();
      send();
    } else if (event.key === "ArrowUp" && !event.altKey && text === "") {
      const last = conversation.findLast((m) => chat.own(m));
      if (!last) return;
      event.preventDefault();
      editing.value = last;
    } else if (event.key === "Escape" || (event.key === "End" && atEnd(event))) {
      document.querySelector<HTMLElement>("[data-testid=jump]")?.click();
    }
  };
  return (
    <footer class="composer">
      <Typing conversation={conversation} />
      <Notice chat={chat} />
      <div class="composer-row">
        <textarea
          ref={field}
          data-testid="composer"
          aria-label={`Message to ${conversation.id}`}
          placeholder={`Message #${conversation.id}`}
          dir="auto"
          rows={1}
          enterkeyhint="send"
          value={text}
          onInput={(event) => {
            change(event.currentTarget.value);
            if (event.currentTarget.value.trim() !== "") chat.typing();
          }}
          onKeyDown={onKeyDown}
        />
        <button type="button" class="send" data-testid="send" aria-label="Send" disabled={!valid} onClick={send}>
          <Icon name="send" />
        </button>
      </div>
      {long && (
        <p class="refused" role="alert">
          Too long: {bytes(text).toLocaleString()} of {maxBytes.toLocaleString()} bytes.
        </p>
      )}
    </footer>
  );
}

// True if End does nothing in the field itself, because the caret is behind the text.
function atEnd(event: KeyboardEvent): boolean {
  const { selectionStart, value } = event.currentTarget as HTMLTextAreaElement;
  return selectionStart === value.length && !event.shiftKey && !event.ctrlKey && !event.altKey;
}

/** NoComposer is in the place of the composer in a channel to which the user cannot send. */
export function NoComposer({ chat, conversation, lost }: { chat: Chat; conversation: Conversation; lost: boolean }) {
  return (
    <footer class="composer">
      <Typing conversation={conversation} />
      <Notice chat={chat} />
      <p class="no-composer" data-testid="no-composer">
        {lost ? "You can't write here." : "You can't write here: your token lacks the action send for this channel."}
      </p>
    </footer>
  );
}

function Typing({ conversation }: { conversation: Conversation }) {
  const users = conversation.view.value.typing.map(userName);
  const words =
    users.length === 0
      ? ""
      : users.length === 1
        ? `${users[0]} is typing`
        : users.length === 2
          ? `${users[0]} and ${users[1]} are typing`
          : `${users.length} people are typing`;
  return (
    <div class="typing" data-testid="typing" role="status" data-on={users.length > 0}>
      {words && (
        <>
          <span class="dots" aria-hidden="true">
            <i />
            <i />
            <i />
          </span>
          <span dir="auto">{words}</span>
        </>
      )}
    </div>
  );
}

function Notice({ chat }: { chat: Chat }) {
  const text = chat.notice.value;
  if (!text) return null;
  return (
    <p class="notice" role="alert" data-testid="notice">
      {text}{" "}
      <button
        type="button"
        class="link"
        onClick={() => {
          chat.notice.value = "";
        }}
      >
        Dismiss
      </button>
    </p>
  );
}

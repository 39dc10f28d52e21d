import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Chat } from "../model/chat";
import type { Message } from "../model/types";
import { bytes, editing, fit, mostBytes, recalling, sends, stopEditing } from "./ui";

/** Changes an own message's text. Arrow up in the unchanged text goes on to the own message before. */
export function Editor({ chat, message }: { chat: Chat; message: Message }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(message.content);
  const valid = text.trim() !== "" && bytes(text) <= mostBytes;
  useLayoutEffect(() => {
    const area = field.current;
    if (!area) return;
    fit(area);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
    area.scrollIntoView({ block: "nearest" });
  }, []);
  const save = () => {
    if (!valid) return;
    if (text !== message.content) void chat.edit(message, text);
    stopEditing();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      stopEditing();
    } else if (sends(event)) {
      event.preventDefault();
      save();
    } else if (event.key === "ArrowUp" && !event.altKey && text === message.content) {
      const before = chat.open.value?.findLast((m) => chat.own(m) && m.seq < message.seq);
      if (!before) return;
      event.preventDefault();
      editing.value = before;
    }
  };
  return (
    <div class="editor">
      <textarea
        ref={field}
        data-testid="editor"
        aria-label="Edit the message"
        dir="auto"
        rows={1}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          fit(event.currentTarget);
        }}
        onKeyDown={onKeyDown}
      />
      <div class="editor-buttons">
        <button type="button" class="primary" data-testid="save" disabled={!valid} onClick={save}>
          Save
        </button>
        <button type="button" data-testid="cancel" onClick={stopEditing}>
          Cancel
        </button>
        <button
          type="button"
          class="danger"
          data-testid="editor-recall"
          onClick={() => {
            recalling.value = message;
          }}
        >
          Take back
        </button>
      </div>
    </div>
  );
}

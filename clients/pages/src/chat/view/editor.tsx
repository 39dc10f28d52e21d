import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { bytes, fit, sends } from "../../ui/field";
import type { Chat } from "../model/chat";
import type { Message } from "../model/types";
import { editing, maxBytes, recalling, stopEditing } from "./ui";

/**
 * Editor edits the text of an own message. Arrow up in an unchanged text moves to the user's
 * previous message.
 */
export function Editor({ chat, message }: { chat: Chat; message: Message }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(message.content);
  const [saving, setSaving] = useState(false);
  const valid = text.trim() !== "" && bytes(text) <= maxBytes;
  useLayoutEffect(() => {
    const area = field.current;
    if (!area) return;
    fit(area);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
    area.scrollIntoView({ block: "nearest" });
  }, []);
  // The editor stays open until the server has stored the text.
  const save = async () => {
    if (!valid || saving) return;
    setSaving(true);
    const saved = text === message.content || (await chat.edit(message, text));
    setSaving(false);
    if (saved && editing.value?.msgId === message.msgId) stopEditing();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      stopEditing();
    } else if (sends(event)) {
      event.preventDefault();
      void save();
    } else if (event.key === "ArrowUp" && !event.altKey && !saving && text === message.content) {
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
        readOnly={saving}
        onInput={(event) => {
          setText(event.currentTarget.value);
          fit(event.currentTarget);
        }}
        onKeyDown={onKeyDown}
      />
      <div class="editor-buttons">
        <button
          type="button"
          class="primary"
          data-testid="save"
          disabled={!valid || saving}
          onClick={() => void save()}
        >
          {saving ? "Saving…" : "Save"}
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
          Delete
        </button>
      </div>
    </div>
  );
}

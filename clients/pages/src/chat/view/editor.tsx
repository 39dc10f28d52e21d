import { TextEditor } from "../../ui/editor";
import type { Chat } from "../model/chat";
import type { Message } from "../model/types";
import { editing, maxBytes, recalling, stopEditing } from "./ui";

/**
 * Editor edits the text of an own message. Arrow up in an unchanged text moves to the user's
 * previous message.
 */
export function Editor({ chat, message }: { chat: Chat; message: Message }) {
  const save = async (text: string) => {
    const saved = text === message.content || (await chat.edit(message, text));
    if (saved && editing.value?.msgId === message.msgId) stopEditing();
  };
  const onKey = (event: KeyboardEvent, text: string) => {
    if (event.key !== "ArrowUp" || event.altKey || text !== message.content) return;
    const before = chat.open.value?.findLast((m) => chat.own(m) && m.seq < message.seq);
    if (!before) return;
    event.preventDefault();
    editing.value = before;
  };
  return (
    <TextEditor
      content={message.content}
      maxBytes={maxBytes}
      action="Save"
      busy="Saving…"
      save={save}
      cancel={stopEditing}
      onKey={onKey}
    >
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
    </TextEditor>
  );
}

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Chat } from "../model/chat";
import type { Message } from "../model/types";
import { recalling, stopEditing } from "./ui";

/** Asks whether a message is to be taken back, as that can't be undone. */
export function RecallQuestion({ chat }: { chat: Chat }) {
  const message = recalling.value;
  return message ? <Question key={message.msgId} chat={chat} message={message} /> : null;
}

function Question({ chat, message }: { chat: Chat; message: Message }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  // The dialog closes first: until then nothing else can have the focus.
  const close = () => dialog.current?.close();
  const closed = () => {
    recalling.value = null;
    stopEditing();
  };
  const confirm = () => {
    void chat.recall(message);
    close();
  };
  return (
    <dialog ref={dialog} class="question" aria-labelledby="recall-title" onClose={closed}>
      <h2 id="recall-title">Take this message back?</h2>
      <blockquote dir="auto">{message.content.slice(0, 300)}</blockquote>
      <p>Its text is deleted for everybody, for good. A note that there was a message stays.</p>
      <div class="question-buttons">
        <button type="button" data-testid="cancel-recall" onClick={close}>
          Keep it
        </button>
        <button type="button" class="danger" data-testid="confirm-recall" onClick={confirm}>
          Take back
        </button>
      </div>
    </dialog>
  );
}

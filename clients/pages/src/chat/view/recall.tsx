import { Dialog } from "../../ui/dialog";
import type { Chat } from "../model/chat";
import type { Message } from "../model/types";
import { recalling, stopEditing } from "./ui";

/** RecallDialog asks whether to delete a message, because that cannot be undone. */
export function RecallDialog({ chat }: { chat: Chat }) {
  const message = recalling.value;
  return message ? <Question key={message.msgId} chat={chat} message={message} /> : null;
}

function Question({ chat, message }: { chat: Chat; message: Message }) {
  // Called after the dialog closed: before that no other element can have the focus.
  const closed = () => {
    recalling.value = null;
    stopEditing();
  };
  const act = async () => {
    void chat.recall(message);
  };
  return (
    <Dialog
      title="Delete this message?"
      yes="Delete"
      no="Keep it"
      danger
      testids={{ yes: "confirm-recall", no: "cancel-recall" }}
      act={act}
      closed={closed}
    >
      <blockquote dir="auto">{message.content.slice(0, 300)}</blockquote>
      <p>Its text is deleted for everybody, forever. A note that a message was deleted remains.</p>
    </Dialog>
  );
}

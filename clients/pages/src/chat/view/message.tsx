import { Avatar, hue } from "../../ui/avatar";
import { dayAndTime, timeOfDay } from "../../ui/format";
import { Icon } from "../../ui/icon";
import { userName } from "../../ui/name";
import type { Chat } from "../model/chat";
import type { Message } from "../model/types";
import { Editor } from "./editor";
import { pieces } from "./links";
import { editing, recalling } from "./ui";

/**
 * MessageRow shows one message. With head it begins a group of one sender's messages and shows the
 * sender.
 */
export function MessageRow({ chat, message, head }: { chat: Chat; message: Message; head: boolean }) {
  const { fromId, type, status, time } = message;
  const own = chat.own(message);
  const edits = own && editing.value?.msgId === message.msgId;
  const action = type === "action";
  const named = head && !action;
  return (
    <article
      class="row"
      data-testid="message"
      data-seq={message.seq}
      data-msg-id={message.msgId}
      data-from={fromId}
      data-type={type}
      data-status={status}
      data-head={head}
      data-own={fromId === chat.me}
      aria-label={`${userName(fromId)}, ${timeOfDay(time)}`}
      tabIndex={own ? -1 : undefined}
    >
      <span class="gutter" aria-hidden="true">
        {named && <Avatar user={fromId} />}
      </span>
      <div class="body">
        {named && (
          <b class={`sender hue-${hue(fromId)}`} data-testid="sender" dir="auto" title={fromId}>
            {userName(fromId)}
          </b>
        )}
        <time dateTime={time.toISOString()} title={dayAndTime(time)}>
          {timeOfDay(time)}
        </time>
        {edits ? <Editor chat={chat} message={message} /> : <Content message={message} action={action} />}
      </div>
      {own && !edits && <Actions message={message} />}
    </article>
  );
}

function Content({ message, action }: { message: Message; action: boolean }) {
  if (message.status === "recalled") {
    return (
      <div class="content recalled">
        <i>{action ? `${userName(message.fromId)} deleted this` : "This message was deleted"}</i>
        <span data-testid="content" hidden />
      </div>
    );
  }
  return (
    <div class="content" dir="auto">
      {action && (
        <>
          <b class={`sender hue-${hue(message.fromId)}`} data-testid="sender" title={message.fromId}>
            {userName(message.fromId)}
          </b>{" "}
        </>
      )}
      <span data-testid="content">
        <Text text={message.content} />
      </span>
      {message.status === "edited" && <small class="edited"> edited</small>}
    </div>
  );
}

/** Text shows a text with its web addresses as links. It has no other markup. */
export function Text({ text }: { text: string }) {
  return (
    <>
      {pieces(text).map((piece, i) =>
        piece.link ? (
          <a key={i} href={piece.text} target="_blank" rel="noopener noreferrer">
            {piece.text}
          </a>
        ) : (
          piece.text
        ),
      )}
    </>
  );
}

function Actions({ message }: { message: Message }) {
  // Not in the tab order, which would be endless. Arrow up in the composer leads to both actions.
  return (
    <span class="actions">
      <button
        type="button"
        tabIndex={-1}
        data-testid="edit"
        aria-label="Edit"
        title="Edit"
        onClick={() => {
          editing.value = message;
        }}
      >
        <Icon name="edit" />
      </button>
      <button
        type="button"
        tabIndex={-1}
        data-testid="recall"
        aria-label="Delete"
        title="Delete"
        onClick={() => {
          recalling.value = message;
        }}
      >
        <Icon name="delete" />
      </button>
    </span>
  );
}

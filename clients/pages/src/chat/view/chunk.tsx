import { Fragment } from "preact";
import { useMemo } from "preact/hooks";
import { dayName, sameDay } from "../../ui/format";
import type { Chat } from "../model/chat";
import type { Chunk } from "../model/timeline";
import type { Message } from "../model/types";
import { MessageRow } from "./message";

const groupGap = 5 * 60_000; // the maximum time between two messages that share a heading, in milliseconds

/**
 * ChunkRows shows the messages of a chunk, with separators of days and the divider before new
 * messages. It renders again only if one of its properties changes.
 */
export function ChunkRows(props: { chat: Chat; chunk: Chunk; previous: Message | undefined; divider: number | null }) {
  const { chat, chunk, previous, divider } = props;
  return useMemo(() => {
    const { messages } = chunk;
    return (
      <div class="chunk" data-chunk={chunk.index} data-size={messages.length}>
        {messages.map((message, i) => {
          const before = i === 0 ? previous : messages[i - 1];
          const newDay = !before || !sameDay(before.time, message.time);
          const line = divider !== null && message.seq > divider && (before?.seq ?? 0) <= divider;
          return (
            <Fragment key={message.seq}>
              {newDay && <Day at={message.time} />}
              {line && <Divider />}
              <MessageRow chat={chat} message={message} head={newDay || line || startsGroup(before, message)} />
            </Fragment>
          );
        })}
      </div>
    );
  }, [chat, chunk, previous, divider]);
}

function startsGroup(before: Message, message: Message): boolean {
  const other = before.fromId !== message.fromId || before.type === "action";
  return other || message.time.getTime() - before.time.getTime() > groupGap;
}

function Day({ at }: { at: Date }) {
  return (
    <div class="day" data-testid="day">
      <span>{dayName(at, new Date())}</span>
    </div>
  );
}

function Divider() {
  return (
    <div class="divider" data-testid="divider">
      <span>New messages</span>
    </div>
  );
}

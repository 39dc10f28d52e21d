import { useMemo } from "preact/hooks";
import { briefly } from "../../ui/format";
import { Sidebar } from "../../ui/frame";
import { userName } from "../../ui/name";
import { PresenceDot } from "../../ui/presence";
import { Rows } from "../../ui/rows";
import type { ChannelView } from "../model/channels";
import type { Chat } from "../model/chat";
import { go, session } from "../session";
import { ChannelName } from "./channelname";
import { others } from "./members";
import { ChannelSearch, EnterMark } from "./search";

/** ChannelList shows the channels, with a field that finds or opens one. */
export function ChannelList({ chat }: { chat: Chat }) {
  const { directory } = chat;
  const { matches, first } = directory.result.value;
  const open = chat.open.value?.id;
  const enter = (id: string) => {
    directory.search("");
    go(id);
  };
  return (
    <Sidebar page="chat" label="Channels" session={session}>
      <ChannelSearch chat={chat} />
      {chat.channels.list.value.length === 0 && (
        <p class="items-empty">No channels yet. Enter a name above to open the first one.</p>
      )}
      <Rows
        items={matches}
        testid="channel-list"
        label="Channels"
        current={open}
        row={(channel, tabIndex) => (
          <Row
            channel={channel}
            open={channel.id === open}
            first={channel.id === first}
            tabIndex={tabIndex}
            me={chat.me}
            online={onlineIn(chat, channel.id)}
            enter={enter}
          />
        )}
      />
    </Sidebar>
  );
}

/** The number of other members who are online, or undefined if that is not known. */
function onlineIn(chat: Chat, channelId: string): number | undefined {
  if (chat.connection.value.state !== "live") return undefined;
  const state = chat.online.channels.value.get(channelId);
  return state && others(state, chat.me);
}

interface RowProps {
  channel: ChannelView;
  open: boolean;
  first: boolean;
  tabIndex: 0 | -1;
  me: string;
  online: number | undefined;
  enter: (id: string) => void;
}

function Row(props: RowProps) {
  const { channel, open, first, tabIndex, me, online, enter } = props;
  return useMemo(() => {
    const { id, unread, last, lost, membersOnly } = channel;
    return (
      <button
        type="button"
        class="item"
        data-testid={`channel-${id}`}
        data-unread={unread > 0}
        data-lost={lost !== ""}
        aria-current={open ? "true" : undefined}
        title={lost || id}
        tabIndex={tabIndex}
        onClick={() => enter(id)}
      >
        <span class="item-name">
          <ChannelName id={id} membersOnly={membersOnly} strong={unread > 0} />
          {online !== undefined && <OnlineCount id={id} online={online} />}
        </span>
        {first ? (
          <EnterMark />
        ) : (
          last && <time dateTime={last.time.toISOString()}>{briefly(last.time, new Date())}</time>
        )}
        <span class="item-note" dir="auto">
          {note(channel, me)}
        </span>
        {unread > 0 && (
          <span class="badge">
            <span data-testid={`unread-${id}`}>{unread > 999 ? "999+" : unread}</span>
            <span class="hidden"> unread</span>
          </span>
        )}
      </button>
    );
  }, [channel, open, first, tabIndex, me, online]);
}

function OnlineCount({ id, online }: { id: string; online: number }) {
  const who = online === 1 ? "other" : "others";
  return (
    <span class="item-online" data-testid={`online-${id}`} title={`${online} ${who} online`}>
      <PresenceDot availability={online > 0 ? "online" : "offline"} />
      {online}
      <span class="hidden"> {who} online</span>
    </span>
  );
}

function note({ loss, last }: ChannelView, me: string): string {
  switch (loss) {
    case "removed":
      return "no longer a member";
    case "outside":
      return "for members only";
    case "token":
      return "not allowed by your token";
    case "gone":
      return "no such channel";
    default:
      return last ? preview(last, me) : "\u00a0";
  }
}

function preview(last: NonNullable<ChannelView["last"]>, me: string): string {
  const sender = last.fromId === me ? "You" : userName(last.fromId);
  if (last.status === "recalled") return `${sender} deleted a message`;
  const text = last.content.slice(0, 200).replace(/\s+/g, " ");
  return last.type === "action" ? `${sender} ${text}` : `${sender}: ${text}`;
}

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { briefly } from "../../ui/format";
import { Sidebar } from "../../ui/frame";
import { Icon } from "../../ui/icon";
import { PresenceDot } from "../../ui/presence";
import type { ChannelView } from "../model/channels";
import type { Chat } from "../model/chat";
import { channelPattern } from "../route";
import { go } from "../session";
import { others } from "./members";

/** ChannelList shows the channels, with a field that finds or opens one. */
export function ChannelList({ chat }: { chat: Chat }) {
  const query = useSignal("");
  const text = query.value.trim().replace(/^#/, "");
  const all = chat.channels.list.value;
  const shown = text ? all.filter((c) => c.id.toLowerCase().includes(text.toLowerCase())) : all;
  const open = chat.open.value?.id;
  const known = all.some((c) => c.id === text);
  const valid = channelPattern.test(text);
  const enter = (id: string) => {
    query.value = "";
    go(id);
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (valid) enter(text);
  };
  return (
    <Sidebar page="chat" label="Channels" user={chat.me} connection={chat.connection}>
      <form class="search" onSubmit={submit}>
        <Icon name="search" />
        <input
          data-testid="channel-name"
          aria-label="Find or open a channel"
          placeholder="Find or open a channel"
          value={query}
          autocomplete="off"
          autocapitalize="none"
          spellcheck={false}
          maxLength={129}
          enterkeyhint="go"
          onInput={(event) => {
            query.value = event.currentTarget.value;
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape") query.value = "";
          }}
        />
      </form>
      {text && !known && (
        <button type="button" class="open-new" disabled={!valid} onClick={() => enter(text)}>
          {valid ? (
            <>
              Open <b>#{text}</b>
            </>
          ) : (
            "A name has at most 128 letters, digits, - and _"
          )}
        </button>
      )}
      <ul class="items" data-testid="channel-list">
        {shown.map((channel) => (
          <Row
            key={channel.id}
            channel={channel}
            open={channel.id === open}
            me={chat.me}
            online={onlineIn(chat, channel.id)}
            enter={enter}
          />
        ))}
        {all.length === 0 && <li class="items-empty">No channels yet. Enter a name above to open the first one.</li>}
      </ul>
    </Sidebar>
  );
}

/** The number of other members who are online, or undefined if that is not known. */
function onlineIn(chat: Chat, channelId: string): number | undefined {
  const state = chat.online.channels.value.get(channelId);
  return state && others(state, chat.me);
}

function Row(props: {
  channel: ChannelView;
  open: boolean;
  me: string;
  online: number | undefined;
  enter: (id: string) => void;
}) {
  const { channel, open, me, online, enter } = props;
  return useMemo(() => {
    const { id, unread, last, lost } = channel;
    return (
      <li>
        <button
          type="button"
          class="item"
          data-testid={`channel-${id}`}
          data-unread={unread > 0}
          data-lost={lost !== ""}
          aria-current={open ? "true" : undefined}
          title={lost || id}
          onClick={() => enter(id)}
        >
          <span class="item-name">
            <span class="hash" aria-hidden="true">
              #
            </span>
            {id}
            {online !== undefined && (
              <span
                class="item-online"
                data-testid={`online-${id}`}
                title={`${online} ${online === 1 ? "other" : "others"} online`}
              >
                <PresenceDot availability={online > 0 ? "online" : "offline"} />
                {online}
                <span class="hidden"> {online === 1 ? "other" : "others"} online</span>
              </span>
            )}
          </span>
          {last && <time dateTime={last.time.toISOString()}>{briefly(last.time, new Date())}</time>}
          <span class="item-note" dir="auto">
            {lost ? "no longer a member" : last ? preview(last, me) : "\u00a0"}
          </span>
          {unread > 0 && (
            <span class="badge">
              <span data-testid={`unread-${id}`}>{unread > 999 ? "999+" : unread}</span>
              <span class="hidden"> unread</span>
            </span>
          )}
        </button>
      </li>
    );
  }, [channel, open, me, online]);
}

function preview(last: NonNullable<ChannelView["last"]>, me: string): string {
  const sender = last.fromId === me ? "You" : last.fromId;
  if (last.status === "recalled") return `${sender} deleted a message`;
  const text = last.content.slice(0, 200).replace(/\s+/g, " ");
  return last.type === "action" ? `${sender} ${text}` : `${sender}: ${text}`;
}

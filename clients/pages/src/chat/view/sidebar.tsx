import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { channelPattern } from "../../connection/token";
import { ConnectionState } from "../../ui/connection";
import { briefly, hue, initials } from "../../ui/format";
import { Icon } from "../../ui/icon";
import { ThemeButton } from "../../ui/theme";
import type { ChannelView } from "../model/channels";
import type { Chat } from "../model/chat";
import { go } from "../session";

/** The list of channels, with a field that finds one or opens another. */
export function Sidebar({ chat }: { chat: Chat }) {
  const sought = useSignal("");
  const text = sought.value.trim().replace(/^#/, "");
  const all = chat.channels.list.value;
  const shown = text ? all.filter((c) => c.id.toLowerCase().includes(text.toLowerCase())) : all;
  const open = chat.open.value?.id;
  const known = all.some((c) => c.id === text);
  const valid = channelPattern.test(text);
  const enter = (id: string) => {
    sought.value = "";
    go(id);
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (valid) enter(text);
  };
  return (
    <nav class="sidebar" aria-label="Channels">
      <header class="sidebar-head">
        <span class={`avatar hue-${hue(chat.me)}`} aria-hidden="true">
          {initials(chat.me)}
        </span>
        <span class="me">
          <b dir="auto">{chat.me}</b>
          <ConnectionState connection={chat.connection} />
        </span>
        <a class="icon-button" href="/queues" data-testid="to-queues" aria-label="Queues" title="Queues">
          <Icon name="queues" />
        </a>
        <ThemeButton />
      </header>
      <form class="search" onSubmit={submit}>
        <Icon name="search" />
        <input
          data-testid="channel-name"
          aria-label="Find or open a channel"
          placeholder="Find or open a channel"
          value={sought}
          autocomplete="off"
          autocapitalize="none"
          spellcheck={false}
          maxLength={65}
          enterkeyhint="go"
          onInput={(event) => {
            sought.value = event.currentTarget.value;
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape") sought.value = "";
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
            "A name has letters, digits, - and _, at most 128"
          )}
        </button>
      )}
      <ul class="channel-list" data-testid="channel-list">
        {shown.map((channel) => (
          <Row key={channel.id} channel={channel} open={channel.id === open} me={chat.me} enter={enter} />
        ))}
        {all.length === 0 && <li class="list-empty">No channels yet. Type a name above to open the first one.</li>}
      </ul>
    </nav>
  );
}

function Row(props: { channel: ChannelView; open: boolean; me: string; enter: (id: string) => void }) {
  const { channel, open, me, enter } = props;
  return useMemo(() => {
    const { id, unread, last, lost } = channel;
    return (
      <li>
        <button
          type="button"
          class="channel"
          data-testid={`channel-${id}`}
          data-unread={unread > 0}
          data-lost={lost !== ""}
          aria-current={open ? "true" : undefined}
          title={lost || id}
          onClick={() => enter(id)}
        >
          <span class="channel-name">
            <span class="hash" aria-hidden="true">
              #
            </span>
            {id}
          </span>
          {last && <time dateTime={last.time.toISOString()}>{briefly(last.time, new Date())}</time>}
          <span class="preview" dir="auto">
            {lost ? "no longer yours" : last ? preview(last, me) : "\u00a0"}
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
  }, [channel, open, me]);
}

function preview(last: NonNullable<ChannelView["last"]>, me: string): string {
  const who = last.fromId === me ? "You" : last.fromId;
  if (last.status === "recalled") return `${who} took a message back`;
  const text = last.content.slice(0, 200).replace(/\s+/g, " ");
  return last.type === "action" ? `${who} ${text}` : `${who}: ${text}`;
}

import type { PlatformPresence } from "@parleyhq/sdk";
import { Avatar } from "../../ui/avatar";
import { userName } from "../../ui/name";
import { type Availability, PresenceDot } from "../../ui/presence";
import type { Chat } from "../model/chat";
import type { ChannelPresence } from "../model/types";

/** availability returns away for a user all of whose devices are in the background. */
export function availability(platforms: readonly PlatformPresence[] = []): Availability {
  if (platforms.length === 0) return "offline";
  return platforms.every((p) => p.background) ? "away" : "online";
}

/** others returns the number of online members besides the user, or of all if there is no list. */
export function others({ onlineCount, online }: ChannelPresence, me: string): number {
  return online?.has(me) ? onlineCount - 1 : onlineCount;
}

/** closeOnEscape closes the list and returns the focus to its button. */
function closeOnEscape(event: KeyboardEvent): void {
  const menu = event.currentTarget as HTMLDetailsElement;
  if (event.key !== "Escape" || !menu.open) return;
  menu.open = false;
  menu.querySelector("summary")?.focus();
}

/**
 * MemberMenu is a button with the number of online members of a members-only channel. It opens the
 * list of them. Without a connection it shows only how many members there are. It shows nothing for
 * a channel whose members are not watched.
 */
export function MemberMenu({ chat, channelId }: { chat: Chat; channelId: string }) {
  const state = chat.online.channels.value.get(channelId);
  if (!state) return null;
  const { onlineCount, memberCount, online } = state;
  if (chat.connection.value.state !== "live") {
    return (
      <p class="members-unknown" data-testid="members-unknown" title="Not connected: who is online is not known.">
        {memberCount === 1 ? "1 member" : `${memberCount} members`}
      </p>
    );
  }
  const users = [...(online?.values() ?? [])].sort((a, b) => (a.userId < b.userId ? -1 : 1));
  const offline = memberCount - users.length;
  return (
    <details class="members" data-testid="members" onKeyDown={closeOnEscape}>
      <summary>
        <PresenceDot availability={onlineCount > 0 ? "online" : "offline"} />
        <span data-testid="online-count">
          {onlineCount} of {memberCount} online
        </span>
      </summary>
      <ul class="member-list" aria-label="Members who are online">
        {users.map(({ userId, platforms }) => {
          const is = availability(platforms);
          return (
            <li key={userId} data-testid={`member-${userId}`} data-availability={is}>
              <Avatar user={userId} />
              <b dir="auto" title={userId}>
                {userName(userId)}
              </b>
              <span class="member-state">
                <PresenceDot availability={is} />
                {is}
              </span>
            </li>
          );
        })}
        {online === undefined && <li class="member-note">The channel has too many members for a list.</li>}
        {online !== undefined && offline > 0 && <li class="member-note">{offline} offline</li>}
      </ul>
    </details>
  );
}

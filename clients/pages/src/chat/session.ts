import { effect } from "@preact/signals";
import { browserClock } from "../connection/clock";
import { browserPeers } from "../connection/peers";
import { signOut } from "../connection/sdk";
import { Session, streamAddress } from "../connection/session";
import { storage } from "../connection/storage";
import { onWake } from "../connection/wake";
import { connect } from "./client";
import { Chat } from "./model/chat";
import type { Environment } from "./model/types";
import { parseRoute, routeFragment } from "./route";

const tabs = "BroadcastChannel" in globalThis ? new BroadcastChannel("parley.read") : null;

/** session holds the token of the chat page and opens a Chat for its user. */
export const session: Session<Chat> = new Session<Chat>({
  keys: ["parley.token"],
  peers: browserPeers(),
  signOut,
  address: streamAddress,
  open: (server, user, route) => {
    const chat = new Chat(connect(server), user, environment(user));
    chat.show(parseRoute(route));
    void chat.start();
    return chat;
  },
  moved: (route) => session.page?.show(parseRoute(route)),
});

/** start starts the page. Call it once. */
export function start(): void {
  onWake(() => void session.page?.refresh());
  tabs?.addEventListener("message", ({ data }) => {
    const { user, channelId, seq, count } = data as { user: string; channelId: string; seq: number; count: number };
    if (user === session.user) session.page?.readElsewhere(channelId, seq, count);
  });
  addEventListener("storage", ({ key, storageArea }) => {
    if (key !== null && storageArea === storage("localStorage")) session.page?.storedElsewhere(key);
  });
  effect(() => {
    const chat = session.page;
    const unread = chat?.channels.unread.value ?? 0;
    const name = chat?.open.value?.id;
    document.title = `${unread > 0 ? `(${unread}) ` : ""}${name ? `${name} · ` : ""}Parley`;
  });
  session.start();
}

/** go opens a channel, or for null the list, and adds it to the browser's history. */
export function go(channel: string | null): void {
  session.go(routeFragment(channel));
}

function environment(user: string): Environment {
  return {
    ...browserClock,
    frame,
    read: (channelId, seq, count) => tabs?.postMessage({ user, channelId, seq, count }),
    storage: storage("localStorage"),
  };
}

// A hidden page draws no frames, but its title still shows the number of unread messages.
function frame(callback: () => void): void {
  if (document.hidden) setTimeout(callback, 100);
  else requestAnimationFrame(callback);
}

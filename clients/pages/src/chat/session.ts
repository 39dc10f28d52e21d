import { effect, signal } from "@preact/signals";
import { endpoint } from "../connection/address";
import { place, store, stored } from "../connection/storage";
import { channelFragment, readFragment, subject } from "../connection/token";
import { connect } from "./client";
import { Chat } from "./model/chat";
import type { Surroundings } from "./model/types";

const tokenKey = "parley.token";

/** The chat of the token at hand; null while there is none that names a user. */
export const chat = signal<Chat | null>(null);

/** Why a token is asked for; empty if there is simply none yet. */
export const tokenReason = signal("");

/** A token of another user than the chat's, which the address bar held; null while there is none to decide about. */
export const offered = signal<{ token: string; user: string; channel: string | null } | null>(null);

let address: Promise<string> | null = null;
let latest = ""; // the token signed in with last
const tabs = "BroadcastChannel" in globalThis ? new BroadcastChannel("parley.read") : null;

/** Begins with the token of the address bar, or of this tab before its reload, and follows the address bar from then on. */
export function begin(): void {
  addEventListener("hashchange", fromAddress);
  addEventListener("popstate", fromAddress);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) void chat.value?.refresh();
  });
  tabs?.addEventListener("message", ({ data }) => {
    const { user, channelId, seq, count } = data as { user: string; channelId: string; seq: number; count: number };
    if (user === chat.value?.me) chat.value.readElsewhere(channelId, seq, count);
  });
  addEventListener("storage", ({ key, storageArea }) => {
    if (key !== null && storageArea === place("localStorage")) chat.value?.storedElsewhere(key);
  });
  effect(() => {
    const unread = chat.value?.channels.unread.value ?? 0;
    const name = chat.value?.open.value?.id;
    document.title = `${unread > 0 ? `(${unread}) ` : ""}${name ? `${name} · ` : ""}Parley`;
  });
  const kept = stored("sessionStorage", tokenKey);
  if (!fromAddress() && kept) signIn(kept);
}

/** Uses a token from now on. It says whether the token names a user; if not, nothing changes but the reason shown. */
export function signIn(token: string): boolean {
  const user = subject(token);
  if (user === null) {
    tokenReason.value = "That is not a token: it names no user.";
    return false;
  }
  store("sessionStorage", tokenKey, token);
  tokenReason.value = "";
  offered.value = null;
  const open = readFragment(location.hash).channel ?? chat.value?.open.value?.id;
  chat.value?.close();
  chat.value = null;
  latest = token;
  address ??= endpoint({
    location,
    fetch: (url, init) => fetch(url, init),
    random: () => crypto.getRandomValues(new Uint32Array(1))[0]?.toString(36) ?? "0",
  });
  void address.then((at) => {
    if (latest !== token || chat.value) return;
    const next = new Chat(connect(at, token), user, surroundings(user));
    chat.value = next;
    if (open) next.show(open);
    void next.start();
  });
  return true;
}

/** Begins anew with the token at hand. */
export function signInAgain(): void {
  signIn(stored("sessionStorage", tokenKey) ?? "");
}

/** Goes on as the user whose token the address bar held, or else as before. */
export function answerOffer(take: boolean): void {
  const offer = offered.value;
  offered.value = null;
  if (!offer || !take) return;
  history.replaceState(null, "", location.pathname + location.search + channelFragment(offer.channel));
  signIn(offer.token);
}

/** Opens a channel, or with null the list, as a step of the browser's history. */
export function go(channel: string | null): void {
  if (chat.value?.open.value?.id === channel) return;
  history.pushState(null, "", location.pathname + location.search + channelFragment(channel));
  chat.value?.show(channel);
}

// Says whether the address held a token, a good one or not.
function fromAddress(): boolean {
  const { token, channel } = readFragment(location.hash);
  if (token) {
    const user = subject(token);
    const now = chat.value;
    // Whoever is chatting does not become somebody else, nor goes elsewhere, because of a link.
    const asked = now !== null && user !== now.me;
    const shown = asked ? (now.open.value?.id ?? null) : channel;
    history.replaceState(null, "", location.pathname + location.search + channelFragment(shown));
    if (asked && user !== null) offered.value = { token, user, channel };
    else signIn(token);
    return true;
  }
  chat.value?.show(channel);
  return false;
}

function surroundings(user: string): Surroundings {
  return {
    now: () => Date.now(),
    frame,
    after: (ms, callback) => {
      const timer = setTimeout(callback, ms);
      return () => clearTimeout(timer);
    },
    read: (channelId, seq, count) => tabs?.postMessage({ user, channelId, seq, count }),
    storage: place("localStorage"),
  };
}

// A hidden page draws no frames, but its title still counts what is unread.
function frame(callback: () => void): void {
  if (document.hidden) setTimeout(callback, 100);
  else requestAnimationFrame(callback);
}

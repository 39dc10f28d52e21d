import { effect, signal } from "@preact/signals";
import { browserClock } from "../connection/clock";
import { browserPeers } from "../connection/peers";
import { signOut } from "../connection/sdk";
import { Session, streamAddress } from "../connection/session";
import { storage } from "../connection/storage";
import { onWake } from "../connection/wake";
import { connect } from "./client";
import { Assistant } from "./model/assistant";
import type { Environment } from "./model/types";
import { parseRoute, type Route, routeFragment } from "./route";

const tabs = "BroadcastChannel" in globalThis ? new BroadcastChannel("parley.sessions") : null;

/** route is the route that the page shows. */
export const route = signal<Route>({ show: "list" });

/** session holds the token of the page and opens an Assistant for its user. */
export const session: Session<Assistant> = new Session<Assistant>({
  keys: ["parley.token"],
  peers: browserPeers(),
  signOut,
  address: streamAddress,
  open: (server, user) => {
    const assistant = new Assistant(connect(server), user, environment(user));
    assistant.show(shown(route.value));
    void assistant.start();
    return assistant;
  },
  moved: (fragment) => {
    route.value = parseRoute(fragment);
    session.page?.show(shown(route.value));
  },
});

/** start starts the page. Call it once. */
export function start(): void {
  onWake(() => void session.page?.refresh());
  tabs?.addEventListener("message", ({ data }) => {
    if ((data as { user: string }).user === session.user) void session.page?.refresh();
  });
  effect(() => {
    const assistant = session.page;
    const id = assistant?.open.value?.id;
    const title = id === undefined ? "" : assistant?.sessions.list.value.find((s) => s.id === id)?.title;
    document.title = `${title ? `${title} · ` : ""}Assistant · Parley`;
  });
  session.start();
}

/** go goes to a route and adds it to the browser's history. */
export function go(to: Route): void {
  session.go(routeFragment(to));
}

function shown(to: Route): string | null {
  return to.show === "session" ? to.id : null;
}

function environment(user: string): Environment {
  return {
    ...browserClock,
    frame,
    changed: () => tabs?.postMessage({ user }),
    id: randomId,
    storage: storage("sessionStorage"),
  };
}

// 22 characters of A-Z a-z 0-9 _ -, which are 132 random bits.
function randomId(): string {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  return Array.from(crypto.getRandomValues(new Uint8Array(22)), (b) => alphabet[b % 64]).join("");
}

function frame(callback: () => void): void {
  if (document.hidden) setTimeout(callback, 100);
  else requestAnimationFrame(callback);
}

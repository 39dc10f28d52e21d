import { effect, signal } from "@preact/signals";
import { browserClock } from "../connection/clock";
import { browserPeers } from "../connection/peers";
import { signOut } from "../connection/sdk";
import { originAddress, Session } from "../connection/session";
import { onWake } from "../connection/wake";
import { connect } from "./client";
import { Board } from "./model/board";
import type { Environment } from "./model/types";
import { overview, parseRoute, type Route, routeFragment } from "./route";

/** route is the route that the page shows. */
export const route = signal<Route>(overview);

/**
 * session is the page's session. It uses the chat page's token until the user enters another one:
 * an operator may have two.
 */
export const session: Session<Board> = new Session<Board>({
  keys: ["parley.admin-token", "parley.token"],
  peers: browserPeers(),
  signOut,
  address: originAddress,
  open: (server) => {
    const board = new Board(connect(server), environment);
    board.choose(route.value.topic);
    board.start();
    return board;
  },
  moved: (fragment) => {
    route.value = parseRoute(fragment);
  },
});

/** start starts the page. Call it once. */
export function start(): void {
  onWake(() => session.page?.wake());
  effect(() => {
    const { topic } = route.value;
    document.title = `${topic ? `${topic} · ` : ""}Queues · Parley`;
    session.page?.choose(topic);
  });
  session.start();
}

/** go goes to a route and adds it to the browser's history. */
export function go(to: Route): void {
  session.go(routeFragment(to));
}

const environment: Environment = { ...browserClock, hidden: () => document.hidden, random: () => Math.random() };

import { effect, signal } from "@preact/signals";
import { browserClock } from "../connection/clock";
import { originAddress, Session } from "../connection/session";
import { onWake } from "../connection/wake";
import { connect } from "./client";
import { Board } from "./model/board";
import type { Surroundings } from "./model/types";
import { type Place, placeFragment, readPlace } from "./place";

/** place is the place that the page shows. */
export const place = signal<Place>({ topic: null, view: "overview" });

/**
 * session is the page's session. It uses the chat page's token until the user enters another one:
 * an operator may have two.
 */
export const session: Session<Board> = new Session<Board>({
  keys: ["parley.admin-token", "parley.token"],
  address: originAddress,
  open: (server) => {
    const board = new Board(connect(server), surroundings);
    board.choose(place.value.topic);
    board.start();
    return board;
  },
  moved: (fragment) => {
    place.value = readPlace(fragment);
  },
});

/** start starts the page. Call it once. */
export function start(): void {
  onWake(() => session.page?.wake());
  effect(() => {
    const { topic } = place.value;
    document.title = `${topic ? `${topic} · ` : ""}Queues · Parley`;
    session.page?.choose(topic);
  });
  session.start();
}

/** go goes to a place and adds it to the browser's history. */
export function go(to: Place): void {
  session.go(placeFragment(to));
}

const surroundings: Surroundings = { ...browserClock, hidden: () => document.hidden, random: () => Math.random() };

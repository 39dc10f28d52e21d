import { effect, signal } from "@preact/signals";
import { browserClock } from "../connection/clock";
import { originAddress, Session } from "../connection/session";
import { onWake } from "../connection/wake";
import { connect } from "./client";
import { Board } from "./model/board";
import type { Surroundings } from "./model/types";
import { type Place, placeFragment, readPlace } from "./place";

/** The place on the page that is shown. */
export const place = signal<Place>({ topic: null, view: "overview" });

/** The session of the page. It uses the chat page's token until it is given its own: an operator may have two. */
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

/** Starts the page. Call it once. */
export function start(): void {
  onWake(() => session.page?.wake());
  effect(() => {
    const { topic } = place.value;
    document.title = `${topic ? `${topic} · ` : ""}Queues · Parley`;
    session.page?.choose(topic);
  });
  session.start();
}

/** Goes to another place, as a step of the browser's history. */
export function go(to: Place): void {
  session.go(placeFragment(to));
}

const surroundings: Surroundings = { ...browserClock, hidden: () => document.hidden, random: () => Math.random() };

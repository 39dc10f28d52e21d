import { effect, signal } from "@preact/signals";
import { store, stored } from "../connection/storage";
import { readFragment, subject } from "../connection/token";
import { connect } from "./client";
import { Board } from "./model/board";
import type { Surroundings } from "./model/types";
import { type Place, placeFragment, readPlace } from "./place";

// The chat page's token serves until this page is given one of its own: an operator may have two.
const ownKey = "parley.admin-token";
const chatKey = "parley.token";

/** What the token at hand lets one see; null while there is none. */
export const board = signal<Board | null>(null);

/** Whose token it is. */
export const user = signal("");

/** Why a token is asked for; empty if there is simply none yet. */
export const tokenReason = signal("");

/** A token of another user, which the address bar held; null while there is none to decide about. */
export const offered = signal<{ token: string; user: string } | null>(null);

/** Where on the page one is. */
export const place = signal<Place>({ topic: null, view: "overview" });

/** Begins with the token of the address bar, or of this tab, and follows the address bar from then on. */
export function begin(): void {
  addEventListener("hashchange", fromAddress);
  addEventListener("online", () => board.value?.wake());
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) board.value?.wake();
  });
  effect(() => {
    const { topic } = place.value;
    document.title = `${topic ? `${topic} · ` : ""}Queues · Parley`;
    board.value?.choose(topic);
  });
  const kept = stored("sessionStorage", ownKey) ?? stored("sessionStorage", chatKey);
  if (!fromAddress() && kept) use(kept);
}

/** Uses a token from now on. It says whether the token names a user; if not, nothing changes but the reason shown. */
export function signIn(token: string): boolean {
  if (!use(token)) return false;
  store("sessionStorage", ownKey, token);
  if (stored("sessionStorage", chatKey) === null) store("sessionStorage", chatKey, token);
  return true;
}

/** Goes on as the user whose token the address bar held, or else as before. */
export function answerOffer(take: boolean): void {
  const offer = offered.value;
  offered.value = null;
  if (offer && take) signIn(offer.token);
}

/** Goes to another place, as a step of the browser's history. */
export function go(to: Place): void {
  location.hash = placeFragment(to);
}

function use(token: string): boolean {
  const name = subject(token);
  if (name === null) {
    tokenReason.value = "That is not a token: it names no user.";
    return false;
  }
  tokenReason.value = "";
  offered.value = null;
  user.value = name;
  board.value?.close();
  // No call of this page lasts, so it needs no host name of its own: see ../endpoint.ts.
  const next = new Board(connect(location.origin, token), surroundings);
  next.choose(place.value.topic);
  board.value = next;
  next.start();
  return true;
}

// Says whether the address held a token, a good one or not.
function fromAddress(): boolean {
  const { token } = readFragment(location.hash);
  place.value = readPlace(location.hash);
  if (!token) return false;
  history.replaceState(null, "", location.pathname + location.search + placeFragment(place.value));
  const name = subject(token);
  // Nobody becomes somebody else because of a link.
  if (board.value !== null && name !== null && name !== user.value) offered.value = { token, user: name };
  else signIn(token);
  return true;
}

const surroundings: Surroundings = {
  now: () => Date.now(),
  after: (ms, callback) => {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
  hidden: () => document.hidden,
  random: () => Math.random(),
};

import { type ReadonlySignal, signal } from "@preact/signals";
import { ownAddress } from "./address";
import type { Server } from "./service";
import { store, stored } from "./storage";
import { splitFragment, subject } from "./token";

/** notToken is the text for something that is not a token. */
export const notToken = "This is not a token: it names no user.";

/** SessionOptions is what differs between the sessions of pages. P is what a page opens for a user. */
export interface SessionOptions<P> {
  /**
   * The keys of session storage under which a tab keeps its token. A page reads the first one that has a token. A token
   * that the user gives goes to the first key, and to the others that have none.
   */
  readonly keys: readonly [string, ...string[]];
  /** Returns the address to call. Called once, at the first sign-in. */
  readonly address: () => Promise<string>;
  /** Opens the page for a user, at a place: a fragment without a token. */
  readonly open: (server: Server, user: string, place: string) => P;
  /** Shows a place, because the address changed. */
  readonly moved: (place: string) => void;
  /** The browser, or a test's own. */
  readonly browser?: Browser;
}

/** Browser is what a session needs of the browser. */
export interface Browser {
  /** Returns the address bar's fragment: empty, or with its `#`. */
  fragment(): string;
  /** Replaces the fragment, without a step in the history, or with one. */
  setFragment(fragment: string, step: boolean): void;
  /** Calls back whenever the user changes the fragment, also by going back. */
  onFragment(callback: () => void): void;
  /** Returns the text that the tab keeps under a key, or null. */
  kept(key: string): string | null;
  /** Keeps a text for the tab. */
  keep(key: string, value: string): void;
}

/**
 * SessionState is whether somebody is signed in. A token leads from `signed_out` or `open` to `opening`, and the server's
 * address from there to `open`.
 */
export type SessionState<P> =
  | { readonly state: "signed_out" }
  | { readonly state: "opening"; readonly user: string }
  | { readonly state: "open"; readonly user: string; readonly page: P };

/** Offer is a token of another user that the address bar held, about which the user decides. */
export interface Offer {
  readonly token: string;
  readonly user: string;
  readonly place: string;
}

/**
 * Session is a page's source of its token: the address bar (`#token=...`, from which it goes at once), then session
 * storage, then the user. It opens the page for the token's user, and again with each new token.
 *
 * A link never makes a signed-in user another one: a token of another user becomes an offer.
 */
export class Session<P extends { close(): void }> {
  readonly #state = signal<SessionState<P>>({ state: "signed_out" });
  readonly #refusal = signal("");
  readonly #offer = signal<Offer | null>(null);
  readonly #options: SessionOptions<P>;
  readonly #browser: Browser;
  #address: Promise<string> | null = null;
  #token = "";
  #place = "";

  constructor(options: SessionOptions<P>) {
    this.#options = options;
    this.#browser = options.browser ?? thisBrowser;
  }

  get state(): ReadonlySignal<SessionState<P>> {
    return this.#state;
  }

  /** The page of the signed-in user, or null. */
  get page(): P | null {
    return this.#state.value.state === "open" ? this.#state.value.page : null;
  }

  /** The signed-in user. Empty if nobody is. */
  get user(): string {
    return this.#state.value.state === "signed_out" ? "" : this.#state.value.user;
  }

  /** Why the last token was not used. Empty if it was. */
  get refusal(): ReadonlySignal<string> {
    return this.#refusal;
  }

  /** The token that the user has to decide about, or null. */
  get offer(): ReadonlySignal<Offer | null> {
    return this.#offer;
  }

  /** Signs in with the token of the address bar or of the tab, and follows the address bar from then on. Call it once. */
  start(): void {
    this.#browser.onFragment(() => this.#follow());
    if (this.#follow()) return;
    const kept = this.#options.keys.map((key) => this.#browser.kept(key)).find((token) => token !== null);
    if (kept) this.#use(kept);
  }

  /** Signs in with a token that the user gave, and keeps it for the tab. It returns whether the text is a token. */
  signIn(token: string): boolean {
    if (!this.#use(token)) return false;
    for (const [i, key] of this.#options.keys.entries()) {
      if (i === 0 || this.#browser.kept(key) === null) this.#browser.keep(key, token);
    }
    return true;
  }

  /** Opens the page again with the same token. */
  again(): void {
    if (this.#token) this.#use(this.#token);
  }

  /** Stays with the present token after another one was refused. */
  stay(): void {
    this.#refusal.value = "";
  }

  /** Accepts or declines the offer. */
  answer(accept: boolean): void {
    const offer = this.#offer.value;
    this.#offer.value = null;
    if (!offer || !accept) return;
    this.#place = offer.place;
    this.#browser.setFragment(offer.place, false);
    this.signIn(offer.token);
  }

  /** Goes to a place, as a step of the browser's history. */
  go(place: string): void {
    if (place !== this.#place) this.#browser.setFragment(place, true);
    this.#move(place);
  }

  #move(place: string): void {
    this.#place = place;
    this.#options.moved(place);
  }

  // Returns whether the address had a token, valid or not.
  #follow(): boolean {
    const { token, place } = splitFragment(this.#browser.fragment());
    if (token === null) {
      this.#move(place);
      return false;
    }
    const user = subject(token);
    const other = this.#state.value.state !== "signed_out" && user !== this.user;
    const to = other || place === "" ? this.#place : place;
    this.#browser.setFragment(to, false);
    if (other && user !== null) {
      this.#offer.value = { token, user, place };
    } else {
      this.#place = to;
      this.signIn(token);
    }
    return true;
  }

  #use(token: string): boolean {
    const user = subject(token);
    if (user === null) {
      this.#refusal.value = notToken;
      return false;
    }
    this.#refusal.value = "";
    this.#offer.value = null;
    this.page?.close();
    this.#token = token;
    this.#state.value = { state: "opening", user };
    this.#options.moved(this.#place);
    this.#address ??= this.#options.address();
    void this.#address.then((address) => {
      if (this.#token !== token || this.#state.value.state !== "opening") return;
      this.#state.value = { state: "open", user, page: this.#options.open({ address, token }, user, this.#place) };
    });
    return true;
  }
}

/** originAddress is the address for pages whose calls end soon: the page's own origin. */
export async function originAddress(): Promise<string> {
  return location.origin;
}

/** streamAddress is the address for pages that keep a stream open: see ownAddress. */
export function streamAddress(): Promise<string> {
  return ownAddress({
    location,
    fetch: (url, init) => fetch(url, init),
    random: () => crypto.getRandomValues(new Uint32Array(1))[0]?.toString(36) ?? "0",
  });
}

const thisBrowser: Browser = {
  fragment: () => location.hash,
  setFragment: (fragment, step) => {
    const url = location.pathname + location.search + fragment;
    if (step) history.pushState(null, "", url);
    else history.replaceState(null, "", url);
  },
  onFragment: (callback) => {
    addEventListener("hashchange", callback);
    addEventListener("popstate", callback);
  },
  kept: (key) => stored("sessionStorage", key),
  keep: (key, value) => store("sessionStorage", key, value),
};

import { type ReadonlySignal, signal } from "@preact/signals";
import { ownAddress } from "./address";
import type { Peers } from "./peers";
import type { Server } from "./service";
import { store, stored } from "./storage";
import { splitFragment, subject } from "./token";

/** invalidToken is the message for a text that is not a token. */
export const invalidToken = "This is not a valid token: it names no user.";

/** SessionOptions configures the session of a page. P is the page that it opens for a user. */
export interface SessionOptions<P> {
  /**
   * The session storage keys of the tab's token. A page reads the first key that has a token. A
   * token that the user enters is stored under the first key, and under the others that have none.
   */
  readonly keys: readonly [string, ...string[]];
  /** Returns the address to call. Called once, at the first sign-in. */
  readonly address: () => Promise<string>;
  /** Opens the page for a user, at a route: a fragment without a token. */
  readonly open: (server: Server, user: string, route: string) => P;
  /** Called with the new route after the fragment of the address changed. */
  readonly moved: (route: string) => void;
  /** The tabs from which a tab without a token gets one. The default is none. */
  readonly peers?: Peers | undefined;
  /** Reports whether the server has not refused the page's token. The default is true. */
  accepted?(page: P): boolean;
  /** The browser's functions. The default is the real browser; tests replace it. */
  readonly browser?: Browser;
}

/** Browser is the part of the browser that a session uses. */
export interface Browser {
  /** Returns the address bar's fragment: empty, or starting with `#`. */
  fragment(): string;
  /**
   * Replaces the fragment. With step it adds an entry to the history, otherwise it replaces the
   * current one.
   */
  setFragment(fragment: string, step: boolean): void;
  /** Calls callback whenever the user changes the fragment, also by going back. */
  onFragment(callback: () => void): void;
  /** Returns the text that the tab stores under key, or null. */
  getItem(key: string): string | null;
  /** Stores a text for the tab. */
  setItem(key: string, value: string): void;
}

/**
 * SessionState is whether a user is signed in. A token moves the session from any state to
 * `opening`, and from there to `open` once the server's address is known. While a new tab asks the
 * others for a token, it is `asking`, and then `opening` or `signed_out`.
 */
export type SessionState<P> =
  | { readonly state: "asking" }
  | { readonly state: "signed_out" }
  | { readonly state: "opening"; readonly user: string }
  | { readonly state: "open"; readonly user: string; readonly page: P };

/** Offer is a token of another user from the address bar. The user accepts or declines it. */
export interface Offer {
  readonly token: string;
  readonly user: string;
  readonly route: string;
}

/**
 * Session provides a page's token: from the address bar (`#token=...`, which is removed at once),
 * else from session storage, else from the user. It opens the page for the token's user, and again
 * for each new token.
 *
 * A link never replaces a signed-in user: a token of another user becomes an offer.
 */
export class Session<P extends { close(): void }> {
  readonly #state = signal<SessionState<P>>({ state: "signed_out" });
  readonly #refusal = signal("");
  readonly #offer = signal<Offer | null>(null);
  readonly #options: SessionOptions<P>;
  readonly #browser: Browser;
  #address: Promise<string> | null = null;
  #token = "";
  #route = "";

  constructor(options: SessionOptions<P>) {
    this.#options = options;
    this.#browser = options.browser ?? thisBrowser;
  }

  get state(): ReadonlySignal<SessionState<P>> {
    return this.#state;
  }

  /** The page of the signed-in user. Null if there is none, or it is not open yet. */
  get page(): P | null {
    return this.#state.value.state === "open" ? this.#state.value.page : null;
  }

  /** The signed-in user. Empty if there is none. */
  get user(): string {
    return "user" in this.#state.value ? this.#state.value.user : "";
  }

  /** Why the last token was rejected. Empty if it was accepted. */
  get refusal(): ReadonlySignal<string> {
    return this.#refusal;
  }

  /** The token that the user has to accept or decline, or null. */
  get offer(): ReadonlySignal<Offer | null> {
    return this.#offer;
  }

  /**
   * Signs in with the token of the address bar, of the tab, or of another tab, and handles later
   * changes of the address bar. Call it once.
   */
  start(): void {
    this.#browser.onFragment(() => this.#follow());
    this.#options.peers?.answer((key) => (this.#accepted() ? this.#browser.getItem(key) : null));
    if (this.#follow()) return;
    const kept = this.#options.keys.map((key) => this.#browser.getItem(key)).find((token) => token !== null);
    if (kept) this.#use(kept);
    else if (this.#options.peers) void this.#ask(this.#options.peers);
  }

  /**
   * Signs in with a token that the user entered, and stores it for the tab. It reports whether the
   * text is a token.
   */
  signIn(token: string): boolean {
    if (!this.#use(token)) return false;
    for (const [i, key] of this.#options.keys.entries()) {
      if (i === 0 || this.#browser.getItem(key) === null) this.#browser.setItem(key, token);
    }
    return true;
  }

  /** Opens the page again with the current token. */
  reopen(): void {
    if (this.#token) this.#use(this.#token);
  }

  /** Clears refusal: the user keeps the current token after another one was rejected. */
  keepToken(): void {
    this.#refusal.value = "";
  }

  /** Accepts or declines the offer. */
  answerOffer(accept: boolean): void {
    const offer = this.#offer.value;
    this.#offer.value = null;
    if (!offer || !accept) return;
    this.#route = offer.route;
    this.#browser.setFragment(offer.route, false);
    this.signIn(offer.token);
  }

  /** Goes to a route and adds it to the browser's history. */
  go(route: string): void {
    if (route !== this.#route) this.#browser.setFragment(route, true);
    this.#move(route);
  }

  async #ask(peers: Peers): Promise<void> {
    this.#state.value = { state: "asking" };
    const found = await peers.ask(this.#options.keys);
    if (this.#state.value.state !== "asking") return;
    this.#state.value = { state: "signed_out" };
    if (found && this.#use(found.token)) this.#browser.setItem(found.key, found.token);
  }

  #accepted(): boolean {
    return this.page !== null && (this.#options.accepted?.(this.page) ?? true);
  }

  #move(route: string): void {
    this.#route = route;
    this.#options.moved(route);
  }

  // Applies the fragment. It reports whether the fragment had a token, valid or not.
  #follow(): boolean {
    const { token, route } = splitFragment(this.#browser.fragment());
    if (token === null) {
      this.#move(route);
      return false;
    }
    const user = subject(token);
    const other = this.user !== "" && user !== this.user;
    const to = other || route === "" ? this.#route : route;
    this.#browser.setFragment(to, false);
    if (other && user !== null) {
      this.#offer.value = { token, user, route };
    } else {
      this.#route = to;
      this.signIn(token);
    }
    return true;
  }

  #use(token: string): boolean {
    const user = subject(token);
    if (user === null) {
      this.#refusal.value = invalidToken;
      return false;
    }
    this.#refusal.value = "";
    this.#offer.value = null;
    this.page?.close();
    this.#token = token;
    this.#state.value = { state: "opening", user };
    this.#options.moved(this.#route);
    this.#address ??= this.#options.address();
    void this.#address.then((address) => {
      if (this.#token !== token || this.#state.value.state !== "opening") return;
      this.#state.value = { state: "open", user, page: this.#options.open({ address, token }, user, this.#route) };
    });
    return true;
  }
}

/** originAddress returns the page's origin. It is the address for pages without a stream. */
export async function originAddress(): Promise<string> {
  return location.origin;
}

/** streamAddress returns the address for pages that keep a stream open. See ownAddress. */
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
  getItem: (key) => stored("sessionStorage", key),
  setItem: (key, value) => store("sessionStorage", key, value),
};

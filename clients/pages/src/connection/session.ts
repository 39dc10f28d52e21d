import { effect, type ReadonlySignal, signal } from "@preact/signals";
import { ownAddress } from "./address";
import { failure } from "./failure";
import type { Peers } from "./peers";
import type { Server } from "./service";
import type { ConnectionState } from "./state";
import { forget, storage, store, stored } from "./storage";
import { splitFragment, subject } from "./token";

/** invalidToken is the message for a text that is not a token. */
export const invalidToken = "This is not a valid token: it names no user.";

/** SignedInPage is what a session requires of the page that it opens for a user. */
export interface SignedInPage {
  readonly connection: ReadonlySignal<ConnectionState>;
  /** Stops all work of the page. */
  close(): void;
}

/** SessionOptions configures the session of a page. P is the page that it opens for a user. */
export interface SessionOptions<P> {
  /**
   * The session storage keys of the tab's token. A page reads the first key that has a token. A
   * token that the user enters is stored under the first key, and under the others that have none.
   * An empty text in place of a token says that its user was signed out.
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
  /** Revokes a token. It resolves too if the token was revoked before. */
  readonly signOut: (server: Server) => Promise<void>;
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
  /** Removes the text under a key. */
  removeItem(key: string): void;
  /** Removes everything that pages have stored for a user, except for tokens. */
  forget(user: string): void;
}

/**
 * SessionState is whether a user is signed in. A token moves the session from any state to
 * `opening`, and from there to `open` once the server's address is known. While a new tab asks the
 * others for a token, it is `asking`, and then `opening` or `signed_out`. When its token is
 * revoked, by a sign-out in this tab or by anybody else, it becomes `signed_out` with left set.
 */
export type SessionState<P> =
  | { readonly state: "asking" }
  /** left is true if a user was signed in, in this tab and before a reload too. */
  | { readonly state: "signed_out"; readonly left: boolean }
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
export class Session<P extends SignedInPage> {
  readonly #state = signal<SessionState<P>>({ state: "signed_out", left: false });
  readonly #refusal = signal("");
  readonly #offer = signal<Offer | null>(null);
  readonly #options: SessionOptions<P>;
  readonly #browser: Browser;
  #address: Promise<string> | null = null;
  #server: Server | null = null;
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
    this.#options.peers?.answer((key) => (this.#accepted() ? this.#browser.getItem(key) || null : null));
    effect(() => {
      const { page } = this;
      if (page !== null && revoked(page)) void this.#revoked(page);
    });
    if (this.#follow()) return;
    const kept = this.#options.keys.map((key) => this.#browser.getItem(key)).find((token) => token !== null);
    if (kept) this.#use(kept);
    // Another tab may be that of another login: a reload must not sign in with its token.
    else if (kept === "") this.#state.value = { state: "signed_out", left: true };
    else if (this.#options.peers) void this.#ask(this.#options.peers);
  }

  /**
   * Signs in with a token that the user entered, and stores it for the tab. It reports whether the
   * text is a token.
   */
  signIn(token: string): boolean {
    if (!this.#use(token)) return false;
    for (const [i, key] of this.#options.keys.entries()) {
      if (i === 0 || !this.#browser.getItem(key)) this.#browser.setItem(key, token);
    }
    return true;
  }

  /**
   * Signs out: revokes the token, closes the page, and forgets the token and everything that was
   * stored for the user. If the token may still be valid, it rejects with an error for the user,
   * and nothing changes: the user can repeat it.
   */
  async signOut(): Promise<void> {
    const server = this.#server;
    if (server === null) return;
    try {
      await this.#options.signOut(server);
    } catch (cause) {
      const { text, remedy } = failure(cause);
      // A token that the server refuses for another reason cannot be revoked, and need not be.
      if (remedy !== "token") throw new Error(`${text} You are still signed in: try again.`);
    }
    this.#leave(server.token);
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
    this.#state.value = { state: "signed_out", left: false };
    if (found && this.#use(found.token)) this.#browser.setItem(found.key, found.token);
  }

  #accepted(): boolean {
    return this.page !== null && this.page.connection.value.state !== "ended";
  }

  // The page has just learned that its token is revoked. It may still store what it was doing, so
  // it is closed when its own work is done.
  async #revoked(page: P): Promise<void> {
    const token = this.#token;
    await Promise.resolve();
    if (this.page === page && this.#token === token) this.#leave(token);
  }

  // Closes the page of a revoked token, unless another token has replaced it.
  #leave(token: string): void {
    // A reload finds the empty text before any other token. Once the user signs in on a page that
    // has only the last key, the pages that fall back to it are signed in too.
    const held = this.#options.keys.filter((key) => this.#browser.getItem(key) === token);
    for (const key of held.slice(0, -1)) this.#browser.removeItem(key);
    for (const key of held.slice(-1)) this.#browser.setItem(key, "");
    if (this.#token !== token) return;
    const { user } = this;
    this.page?.close();
    this.#token = "";
    this.#server = null;
    this.#refusal.value = "";
    this.#offer.value = null;
    this.#browser.forget(user);
    this.#state.value = { state: "signed_out", left: true };
    this.#browser.setFragment("", false);
    this.#move("");
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
    this.#server = null;
    this.#state.value = { state: "opening", user };
    this.#options.moved(this.#route);
    this.#address ??= this.#options.address();
    void this.#address.then((address) => {
      if (this.#token !== token || this.#state.value.state !== "opening") return;
      this.#server = { address, token };
      this.#state.value = { state: "open", user, page: this.#options.open(this.#server, user, this.#route) };
    });
    return true;
  }
}

function revoked({ connection }: SignedInPage): boolean {
  const now = connection.value;
  return now.state === "ended" && now.end === "revoked";
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
  removeItem: (key) => storage("sessionStorage")?.removeItem(key),
  forget,
};

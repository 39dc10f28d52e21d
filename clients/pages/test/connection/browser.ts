import type { Browser, SignedInPage } from "../../src/connection/session";
import { Connection } from "../../src/connection/state";

/** token returns a token of a user. n makes another one of the same user. */
export const token = (sub: string, n = 0) => `h.${Buffer.from(JSON.stringify({ sub, n })).toString("base64url")}.s`;

/** FakeBrowser is a tab with an address bar and a storage. */
export class FakeBrowser implements Browser {
  hash = "";
  readonly steps: string[] = [];
  readonly tab = new Map<string, string>();
  readonly forgotten: string[] = [];
  #changed = () => {};

  fragment = () => this.hash;
  getItem = (key: string) => this.tab.get(key) ?? null;
  setItem = (key: string, value: string) => void this.tab.set(key, value);
  removeItem = (key: string) => void this.tab.delete(key);
  forget = (user: string) => void this.forgotten.push(user);
  onFragment = (callback: () => void) => {
    this.#changed = callback;
  };
  setFragment = (fragment: string, step: boolean) => {
    this.hash = fragment;
    if (step) this.steps.push(fragment);
  };

  /** Follows a link within the page. */
  link(hash: string): void {
    this.hash = hash;
    this.#changed();
  }
}

/** FakePage is a page whose connection the test moves. */
export class FakePage implements SignedInPage {
  readonly state = new Connection();

  constructor(readonly close: () => void) {}

  get connection() {
    return this.state.current;
  }
}

import { beforeEach, describe, expect, test } from "vitest";
import { failure } from "../../src/connection/failure";
import type { PeerToken } from "../../src/connection/peers";
import { invalidToken, Session } from "../../src/connection/session";
import { FakeBrowser, FakePage, token } from "./browser";

describe("session", () => {
  let browser: FakeBrowser;
  let session: Session<FakePage>;
  let happened: string[];

  beforeEach(() => {
    browser = new FakeBrowser();
    happened = [];
    session = new Session({
      keys: ["own", "shared"],
      address: async () => "http://server",
      open: (server, user, route) => {
        happened.push(`open ${user} ${server.address} ${route}`);
        return new FakePage(() => happened.push(`close ${user}`));
      },
      signOut: async () => {},
      moved: (route) => happened.push(`moved ${route}`),
      browser,
    });
  });

  /** begin starts the session and waits until its page is open. */
  async function begin(hash = ""): Promise<void> {
    browser.hash = hash;
    session.start();
    await opened();
  }

  async function opened(): Promise<void> {
    await Promise.resolve();
    await Promise.resolve();
  }

  test("removes the token from the address at once, stores it for the tab, and opens the page at the route", async () => {
    browser.hash = `#token=${token("ann")}&topic=jobs`;
    session.start();
    expect(browser.hash).toBe("#topic=jobs");
    expect(session.state.value).toEqual({ state: "opening", user: "ann" });
    expect(session.page).toBeNull();
    await opened();
    expect(session.state.value.state).toBe("open");
    expect(happened).toEqual(["moved #topic=jobs", "open ann http://server #topic=jobs"]);
    expect(browser.tab).toEqual(new Map([["own", token("ann")], ["shared", token("ann")]])); // biome-ignore format: a table
  });

  test("uses the first token that the tab has, and does not copy it", async () => {
    browser.tab.set("shared", token("ben"));
    await begin();
    expect(session.user).toBe("ben");
    expect(browser.tab.has("own")).toBe(false);
  });

  test("no user is signed in without a valid token", async () => {
    await begin("#token=garbage&topic=a");
    expect(browser.hash).toBe("#topic=a");
    expect(session.refusal.value).toBe(invalidToken);
    expect(session.signIn("nonsense")).toBe(false);
    expect(session.state.value).toEqual({ state: "signed_out", left: false });
    expect(browser.tab.size).toBe(0);
    expect(session.signIn(token("ann"))).toBe(true);
    await opened();
    expect([session.refusal.value, session.user]).toEqual(["", "ann"]);
  });

  test("a link to another route moves the page, and go adds one history entry", async () => {
    await begin(`#token=${token("ann")}`);
    happened.length = 0;
    browser.link("#topic=a");
    session.go("#topic=b");
    session.go("#topic=b");
    expect(happened).toEqual(["moved #topic=a", "moved #topic=b", "moved #topic=b"]);
    expect(browser.steps).toEqual(["#topic=b"]);
  });

  test("a link with another user's token has no effect until the user accepts it", async () => {
    await begin(`#token=${token("ann")}&topic=a`);
    happened.length = 0;
    browser.link(`#token=${token("ben")}&topic=b`);
    expect(browser.hash).toBe("#topic=a");
    expect([session.user, session.offer.value?.user]).toEqual(["ann", "ben"]);
    session.answerOffer(false);
    expect([session.offer.value, happened]).toEqual([null, []]);
    expect(browser.tab.get("own")).toBe(token("ann"));

    browser.link(`#token=${token("ben")}&topic=b`);
    session.answerOffer(true);
    await opened();
    expect(browser.hash).toBe("#topic=b");
    expect(happened).toEqual(["close ann", "moved #topic=b", "open ben http://server #topic=b"]);
    expect(browser.tab.get("own")).toBe(token("ben"));
    expect(browser.tab.get("shared")).toBe(token("ann"));
  });

  test("a link with an invalid token shows an error, and the page stays open", async () => {
    await begin(`#token=${token("ann")}&topic=a`);
    browser.link("#token=garbage&topic=b");
    expect([browser.hash, session.refusal.value]).toEqual(["#topic=a", invalidToken]);
    session.keepToken();
    expect([session.refusal.value, session.user]).toEqual(["", "ann"]);
  });

  test("a newer token of the same user reopens the page at its route", async () => {
    await begin(`#token=${token("ann")}&topic=a`);
    happened.length = 0;
    browser.link(`#token=${token("ann", 2)}`);
    await opened();
    expect(browser.hash).toBe("#topic=a");
    expect(happened).toEqual(["close ann", "moved #topic=a", "open ann http://server #topic=a"]);
    expect(browser.tab.get("own")).toBe(token("ann", 2));
  });

  test("of two tokens in quick succession only the last one opens a page", async () => {
    browser.hash = `#token=${token("ann")}`;
    session.start();
    session.signIn(token("ben"));
    await opened();
    expect(happened.filter((h) => h.startsWith("open"))).toEqual(["open ben http://server "]);
    session.reopen();
    await opened();
    expect(happened.slice(-3)).toEqual(["close ben", "moved ", "open ben http://server "]);
  });

  describe("with other tabs", () => {
    let give: (found: PeerToken | null) => void;
    let answer: (key: string) => string | null;

    beforeEach(() => {
      session = new Session({
        keys: ["own", "shared"],
        address: async () => "http://server",
        open: (_, user) => new FakePage(() => happened.push(`close ${user}`)),
        signOut: async () => {},
        moved: () => {},
        peers: {
          ask: () =>
            new Promise((resolve) => {
              give = resolve;
            }),
          answer: (token) => {
            answer = token;
          },
        },
        browser,
      });
    });

    test("a new tab gets their token, and stores it under its key", async () => {
      session.start();
      expect(session.state.value).toEqual({ state: "asking" });
      give({ key: "shared", token: token("ann") });
      for (let i = 0; i < 4; i++) await Promise.resolve();
      expect(session.user).toBe("ann");
      expect(browser.tab).toEqual(new Map([["shared", token("ann")]]));
    });

    test("without an answer it asks the user", async () => {
      session.start();
      give(null);
      for (let i = 0; i < 4; i++) await Promise.resolve();
      expect(session.state.value).toEqual({ state: "signed_out", left: false });
    });

    test("an answer does not replace a token of the address", async () => {
      session.start();
      browser.link(`#token=${token("ben")}`);
      give({ key: "own", token: token("ann") });
      for (let i = 0; i < 4; i++) await Promise.resolve();
      expect(session.user).toBe("ben");
    });

    test("it gives its token to others, but not one that the server refused", async () => {
      await begin(`#token=${token("ann")}`);
      expect(answer("own")).toBe(token("ann"));
      session.page?.state.end({ ...failure(null), remedy: "token" });
      expect(answer("own")).toBeNull();
    });
  });
});

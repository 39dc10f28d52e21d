import { Code } from "@connectrpc/connect";
import { beforeEach, describe, expect, test } from "vitest";
import { failure } from "../../src/connection/failure";
import { Session } from "../../src/connection/session";
import { FakeBrowser, FakePage, token } from "./browser";

const left = { state: "signed_out", left: true };
const unreachable = { code: Code.Unavailable, message: "no answer", cause: new TypeError("Failed to fetch") };

describe("signing out", () => {
  let browser: FakeBrowser;
  let asked: number;
  let closed: string[];
  let signedOut: string[];
  let refuse: unknown;

  beforeEach(() => {
    browser = new FakeBrowser();
    [asked, closed, signedOut, refuse] = [0, [], [], null];
  });

  /** Returns the session of a page of the tab after it was loaded, with another tab that has a token. */
  async function load(hash = "", keys: [string, ...string[]] = ["own", "shared"]): Promise<Session<FakePage>> {
    browser.hash = hash;
    const session = new Session<FakePage>({
      keys,
      address: async () => "http://server",
      open: (_, user) => new FakePage(() => closed.push(user)),
      moved: () => {},
      signOut: async (server) => {
        signedOut.push(server.token);
        if (refuse !== null) throw refuse;
      },
      peers: {
        ask: async () => {
          asked++;
          return { key: "own", token: token("eve") };
        },
        answer: () => {},
      },
      browser,
    });
    session.start();
    await settled();
    return session;
  }

  async function settled(): Promise<void> {
    for (let i = 0; i < 6; i++) await Promise.resolve();
  }

  test("revokes the token, closes the page, and forgets the token, the user's texts and the place", async () => {
    const session = await load(`#token=${token("ann")}&topic=a`);
    await session.signOut();
    expect(signedOut).toEqual([token("ann")]);
    expect(closed).toEqual(["ann"]);
    expect(session.state.value).toEqual(left);
    expect([...browser.tab.values()].join()).toBe("");
    expect([browser.hash, browser.forgotten, session.user]).toEqual(["", ["ann"], ""]);
  });

  test("a reload stays signed out, and asks no other tab", async () => {
    await (await load(`#token=${token("ann")}`)).signOut();
    const session = await load();
    expect(session.state.value).toEqual(left);
    expect(asked).toBe(0);
    expect(session.signIn(token("ben"))).toBe(true);
    await settled();
    expect([session.user, browser.tab.get("own")]).toEqual(["ben", token("ben")]);
    expect((await load()).user).toBe("ben");
  });

  test("a page that falls back to another page's token is signed out and in with that", async () => {
    await (await load(`#token=${token("ann")}`)).signOut();
    expect((await load("", ["shared"])).state.value).toEqual(left);
    await load(`#token=${token("ben")}`, ["shared"]);
    expect((await load()).user).toBe("ben");
  });

  test("a page does not fall back to another user's token after a sign-out", async () => {
    await load(`#token=${token("ann")}`, ["shared"]);
    const session = await load(`#token=${token("ops")}`);
    expect(session.user).toBe("ops");
    await session.signOut();
    expect((await load()).state.value).toEqual(left);
    expect((await load("", ["shared"])).user).toBe("ann");
  });

  test("if the server can't be reached nothing changes, and the user can repeat it", async () => {
    const session = await load(`#token=${token("ann")}`);
    refuse = unreachable;
    await expect(session.signOut()).rejects.toThrow("The server can't be reached. You are still signed in: try again.");
    expect([session.user, closed, browser.tab.get("own")]).toEqual(["ann", [], token("ann")]);
    refuse = null;
    await session.signOut();
    expect(session.state.value).toEqual(left);
  });

  test("a token that the server refuses anyway needs no revocation", async () => {
    const session = await load(`#token=${token("ann")}`);
    refuse = { code: Code.Unauthenticated, reason: "TOKEN_EXPIRED" };
    await session.signOut();
    expect(session.state.value).toEqual(left);
  });

  test("a revocation by anybody else signs out too, once the page has done its work", async () => {
    const session = await load(`#token=${token("ann")}&topic=a`);
    const page = session.page;
    page?.state.end(failure({ code: Code.Unauthenticated, reason: "TOKEN_REVOKED" }));
    expect(session.page).toBe(page);
    await settled();
    expect(session.state.value).toEqual(left);
    expect([signedOut, closed, browser.forgotten]).toEqual([[], ["ann"], ["ann"]]);
    expect((await load()).state.value).toEqual(left);
  });

  test("a token that is refused for another reason stays, for the user to replace", async () => {
    const session = await load(`#token=${token("ann")}`);
    session.page?.state.end(failure({ code: Code.Unauthenticated, reason: "TOKEN_EXPIRED" }));
    await settled();
    expect([session.user, browser.forgotten]).toEqual(["ann", []]);
  });

  test("a token that replaced the revoked one meanwhile stays", async () => {
    const session = await load(`#token=${token("ann")}`);
    refuse = null;
    const done = session.signOut();
    session.signIn(token("ann", 2));
    await done;
    await settled();
    expect([session.user, browser.tab.get("own")]).toEqual(["ann", token("ann", 2)]);
  });
});

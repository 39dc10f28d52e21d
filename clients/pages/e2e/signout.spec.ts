import type { Page } from "@playwright/test";
import { Chat } from "./rig/chat.ts";
import { operator, Queues } from "./rig/queues.ts";
import { expect, present, type Room, test } from "./rig/test.ts";

// The server refuses calls with a revoked token.
test.use({ faults: true });

/** The capabilities of a user of all pages. */
const all = [...operator, ...present, "session:*=append,history,subscribe"];

/** signOut signs out with the page's button, and confirms it. */
async function signOut(page: Page): Promise<void> {
  await page.getByTestId("sign-out").click();
  await page.getByTestId("confirm-sign-out").click();
}

/** expectSignedOut checks that a page shows that its user is signed out, and has kept nothing. */
async function expectSignedOut(page: Page): Promise<void> {
  await expect(page.getByTestId("signed-out")).toBeVisible();
  await expect(page.getByTestId("token-input")).toBeFocused();
  await expect(page.getByTestId("state")).toHaveCount(0);
  expect(new URL(page.url()).hash).toBe("");
  const kept = await page.evaluate(() => {
    const items = [...Object.entries(sessionStorage), ...Object.entries(localStorage)];
    return items.filter(([key, value]) => key !== "parley.theme" && value !== "").map(([key]) => key);
  });
  expect(kept).toEqual([]);
}

/** open opens a page of the room's server in a new tab, with the token of the browser's other tabs. */
async function open(beside: Page, room: Room, path: string, watch: (page: Page) => void): Promise<Page> {
  const page = await beside.context().newPage();
  watch(page);
  await page.goto(room.url + path);
  await expect(page.getByTestId("state")).toHaveAttribute("data-state", "live");
  return page;
}

async function signIn(page: Page, token: string): Promise<void> {
  await page.getByTestId("token-input").fill(token);
  await page.getByTestId("token-input").press("Enter");
}

test("signing out in one of two tabs signs out both, and another login continues", async ({ room, enter, watch }) => {
  const other = await enter("ann", { capabilities: present });
  const first = await enter("ann");
  const token = await first.page.evaluate(() => sessionStorage.getItem("parley.token") ?? "");
  const second = await open(first.page, room, `/#channel=${room.channel}`, watch);
  await expect(second.getByTestId("me")).toHaveText("ann");
  await first.send("before");
  await first.sent();
  await first.composer.fill("a secret that was not sent");

  // By keyboard alone.
  const { page } = first;
  await page.getByTestId("sign-out").focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("dialog", { name: "Sign out?" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByTestId("cancel-sign-out")).toHaveCount(0);
  await expect(page.getByTestId("sign-out")).toBeFocused();
  await expect(first.composer).toHaveValue("a secret that was not sent");
  await page.keyboard.press("Enter");
  await expect(page.getByTestId("cancel-sign-out")).toBeFocused();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await expectSignedOut(page);
  await expectSignedOut(second);

  for (const tab of [page, second]) {
    await tab.reload();
    await expectSignedOut(tab);
  }
  const late = await page.context().newPage();
  watch(late);
  await late.goto(room.url);
  await expect(late.getByTestId("token-form")).toBeVisible();
  await expect(late.getByTestId("signed-out")).toHaveCount(0);

  // The token is of no use any more.
  await signIn(page, token);
  await expect(page.getByTestId("me")).toHaveCount(0);
  await expectSignedOut(page);

  await other.live();
  await other.send("after");
  await expect(other.message("after")).toBeVisible();
  await signIn(page, room.server.token("bob", ...present));
  await first.live();
  await expect(page.getByTestId("me")).toHaveText("bob");
  await page.reload();
  await first.live();
  await page.goto(`${room.url}/#channel=${room.channel}`);
  await expect(first.message("after")).toBeVisible();
  await expect(first.composer).toHaveValue("");
});

test("without a connection signing out fails, and can be repeated", async ({ room, enter }) => {
  const chat = await enter("ann");
  const { page } = chat;
  room.network.cut();
  await signOut(page);
  await expect(page.getByTestId("dialog-problem")).toHaveText(
    "The server can't be reached. You are still signed in: try again.",
  );
  await expect(page.getByTestId("me")).toHaveText("ann");
  room.network.heal();
  await page.getByTestId("confirm-sign-out").click();
  await expectSignedOut(page);
});

test("a sign-out whose answer is lost succeeds", async ({ room, enter }) => {
  const { page } = await enter("ann");
  let calls = 0;
  await page.route("**/SignOut", async (route) => {
    if (calls++ === 0) return route.abort("connectionreset");
    // The first call arrives just before the repeat, whose answer is then that the token is revoked.
    // The page's own host name, which only the browser resolves, is the room's server.
    const request = route.request();
    const body = new Uint8Array(request.postDataBuffer() ?? []);
    const answer = await fetch(room.server.url + new URL(request.url()).pathname, {
      method: "POST",
      headers: await request.allHeaders(),
      body,
    });
    expect(answer.status).toBe(200);
    return route.continue();
  });
  await signOut(page);
  await expectSignedOut(page);
  expect(calls).toBe(2);
  expect(await room.api.history(room.channel)).toEqual([]);
});

test("a sign-out on the queue page ends the chat and the assistant too", async ({ room, enter, watch }) => {
  const chat = await enter("ops", { capabilities: all });
  const queues = await open(chat.page, room, "/queues", watch);
  const assistant = await open(chat.page, room, "/assistant#view=new", watch);
  await assistant.getByTestId("composer").fill("a prompt that was not sent");
  await signOut(queues);
  await expectSignedOut(queues);
  await expectSignedOut(assistant);
  await expectSignedOut(chat.page);
  await queues.reload();
  await expectSignedOut(queues);

  // Signed in again on the chat page, the tab is signed in on the others.
  const { page } = chat;
  await signIn(page, room.server.token("ops2", ...all));
  await chat.live();
  await page.getByTestId("to-queues").click();
  await expect(page.getByTestId("me")).toHaveText("ops2");
  await page.getByTestId("to-assistant").click();
  await expect(page.getByTestId("me")).toHaveText("ops2");
  await signOut(page);
  await expectSignedOut(page);
});

test("a revocation by an operator signs out, and nothing connects again", async ({ room, enter, watch }) => {
  const chat = await enter("ann", { capabilities: all });
  const queues = await open(chat.page, room, "/queues", watch);
  const { admin } = new Queues(room.server.url, room.server.token("root", "admin"));
  await admin.revokeTokens({ target: { case: "userId", value: "ann" } });
  for (const page of [chat.page, queues]) {
    await expectSignedOut(page);
    const calls: string[] = [];
    page.on("request", (request) => calls.push(request.url()));
    await page.evaluate(() => dispatchEvent(new Event("online")));
    await page.getByTestId("theme").waitFor({ state: "detached" });
    await page.reload();
    await expectSignedOut(page);
    expect(calls.filter((url) => url.includes("/parley."))).toEqual([]);
  }
});

test("a browser that was away during the sign-out learns of it when it comes back", async ({
  browser,
  room,
  enter,
  watch,
}) => {
  const first = await enter("ann");
  const token = await first.page.evaluate(() => sessionStorage.getItem("parley.token") ?? "");
  const context = await browser.newContext();
  try {
    const away = new Chat(await context.newPage());
    watch(away.page);
    await away.page.goto(`${room.url}/#token=${token}&channel=${room.channel}`);
    await away.live();
    await context.setOffline(true);
    await expect(away.state).toHaveAttribute("data-state", "waiting");
    await away.send("written while away");
    await signOut(first.page);
    await expectSignedOut(first.page);
    await context.setOffline(false);
    await expectSignedOut(away.page);
    expect(await room.api.history(room.channel)).toEqual([]);
  } finally {
    await context.close();
  }
});

import { Chat } from "./rig/chat.ts";
import { expectExactly } from "./rig/judge.ts";
import { expect, test } from "./rig/test.ts";

test("every operation works by keyboard alone", async ({ room, enter }) => {
  await room.api.send(room.channel, "welcome");
  const chat = await enter("ann");
  const { page } = chat;
  const keys = page.keyboard;
  await expect(chat.message("welcome")).toBeVisible();
  await expect(chat.composer).toBeFocused();

  await keys.type("one line");
  await keys.press("Shift+Enter");
  await keys.type("and another");
  await keys.press("Enter");
  await expect(chat.message("one line\nand another")).toBeVisible();

  await keys.press("ArrowUp");
  await expect(page.getByTestId("editor")).toBeFocused();
  await keys.press("Control+A");
  await keys.type("better");
  await keys.press("Enter");
  await expect(chat.message("better")).toHaveAttribute("data-status", "edited");
  await expect(chat.composer).toBeFocused();

  await keys.press("ArrowUp");
  await keys.press("Escape");
  await expect(page.getByTestId("editor")).toHaveCount(0);
  await expect(chat.composer).toBeFocused();

  const other = `${room.channel}-2`;
  await keys.press("Control+K");
  await expect(page.getByTestId("channel-name")).toBeFocused();
  await keys.type(other);
  await keys.press("Enter");
  await expect(page.getByTestId("title")).toContainText(other);
  await expect(chat.composer).toBeFocused();
  await keys.type("first here");
  await keys.press("Enter");
  await expect(chat.message("first here")).toBeVisible();

  await keys.press("Alt+ArrowDown");
  await expect(page.getByTestId(`channel-${room.channel}`)).toHaveAttribute("aria-current", /./);
  await expect(chat.message("better")).toBeVisible();
  await keys.press("Alt+ArrowUp");
  await expect(chat.message("first here")).toBeVisible();

  // Every element can be focused, and the focus is visible.
  const reached = new Set<string>();
  for (let i = 0; i < 40; i++) {
    await keys.press("Tab");
    const at = await page.evaluate(() => {
      const element = document.activeElement as HTMLElement;
      const style = getComputedStyle(element);
      const caret = element.matches("input, textarea");
      const ring = style.outlineStyle !== "none" || style.boxShadow !== "none";
      return { id: element.dataset.testid ?? "", seen: caret || ring || element === document.body };
    });
    expect(at.seen, `the focus can be seen on ${at.id}`).toBe(true);
    reached.add(at.id);
  }
  for (const id of ["skip", "composer", "theme", "channel-name", `channel-${other}`, "messages"]) {
    expect(reached).toContain(id);
  }
});

test("the page fits a phone", async ({ room, enter }) => {
  await room.api.send(room.channel, "hello there");
  const chat = await enter("ann", {
    options: { viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 },
  });
  const { page } = chat;
  await expect(chat.message("hello there")).toBeVisible();
  await chat.composer.tap();
  await chat.composer.fill("from a phone");
  await page.getByTestId("send").tap();
  await expect(chat.message("from a phone")).toBeVisible();
  const size = await page.getByTestId("send").boundingBox();
  expect(Math.min(size?.width ?? 0, size?.height ?? 0), "a finger can hit it").toBeGreaterThanOrEqual(44);

  await page.getByTestId("back").tap();
  await expect(page.getByTestId(`channel-${room.channel}`)).toBeVisible();
  await expect(chat.composer).not.toBeVisible();
  await page.getByTestId(`channel-${room.channel}`).tap();
  await expect(chat.composer).toBeVisible();
  const sideways = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  expect(sideways).toBeLessThanOrEqual(0);
  await expectExactly(chat, await room.api.history(room.channel));
});

test("the token leaves the address bar and survives a reload", async ({ enter, room }) => {
  const chat = await enter("ann");
  expect(chat.page.url()).not.toContain("token");
  await chat.page.reload();
  await chat.live();
  await chat.send("still me");
  await chat.sent();
  expect((await room.api.history(room.channel)).map((m) => m.sender)).toEqual(["ann"]);
});

test("a second tab by the plain address has the first one's user, and a new profile has none", async ({
  browser,
  enter,
  room,
}) => {
  const first = await enter("ann");
  const page = await first.page.context().newPage();
  await page.goto(room.url);
  const second = new Chat(page);
  await second.live();
  await expect(page.getByTestId("me")).toHaveText("ann");
  await page.goto(`${room.url}/#channel=${room.channel}`);
  await second.send("from the second tab");
  await expect(first.message("from the second tab")).toBeVisible();

  // The tab has the token now: it survives a reload without the other tab.
  await first.page.close();
  await page.reload();
  await second.live();
  const profile = await browser.newContext();
  const stranger = await profile.newPage();
  await stranger.goto(room.url);
  await expect(stranger.getByTestId("token-form")).toBeVisible();
  await profile.close();
});

test.describe("an invalid token", () => {
  test.use({ faults: true });

  test("the page shows why, and accepts another token", async ({ browser, room }) => {
    const context = await browser.newContext();
    const page = await context.newPage();
    const thrown: string[] = [];
    page.on("pageerror", (error) => thrown.push(String(error)));
    const chat = new Chat(page);
    const [head, claims] = room.server.token("ann").split(".");
    await page.goto(`${room.url}/#token=${head}.${claims}.AAAA&channel=${room.channel}`);
    await expect(page.getByTestId("token-form")).toBeVisible();
    await expect(page.getByTestId("token-reason")).not.toBeEmpty();
    await page.getByTestId("token-input").fill(room.server.token("ann"));
    await page.getByTestId("token-input").press("Enter");
    await chat.live();
    await chat.send("let in");
    await chat.sent();
    expect(thrown).toEqual([]);
    await context.close();
  });

  test("a tab does not give a refused token to another one", async ({ browser, room }) => {
    const context = await browser.newContext();
    const page = await context.newPage();
    const [head, claims] = room.server.token("ann").split(".");
    await page.goto(`${room.url}/#token=${head}.${claims}.AAAA`);
    await expect(page.getByTestId("token-refused")).toBeVisible();
    const second = await context.newPage();
    await second.goto(room.url);
    await expect(second.getByTestId("token-form")).toBeVisible();
    await expect(second.getByTestId("token-refused")).toHaveCount(0);
    await context.close();
  });

  test("one in the address is reported, also if the page has a valid one, and the session does not change", async ({
    enter,
    room,
  }) => {
    const chat = await enter("ann");
    const { page } = chat;
    const hash = (text: string) =>
      page.evaluate((to) => {
        location.hash = to;
      }, text);
    await hash("token=garbage");
    await expect(page.getByTestId("token-reason")).toContainText("not a valid token");
    expect(page.url()).not.toContain("token");
    await page.getByTestId("keep-token").click();
    await expect(page.getByTestId("token-form")).toHaveCount(0);

    const other = `${room.channel}-2`;
    await hash(`token=${room.server.token("ben")}&channel=${other}`);
    await expect(page.getByTestId("offer")).toContainText("ben");
    await expect(page.getByTestId("title")).toContainText(room.channel);
    expect(page.url()).toContain(`#channel=${room.channel}`);
    await page.getByTestId("leave-offer").click();
    await chat.send("still ann");
    await chat.sent();
    await hash(`token=${room.server.token("ben")}&channel=${other}`);
    await page.getByTestId("take-offer").click();
    await expect(page.getByTestId("title")).toContainText(other);
    await chat.live();
    await chat.send("ben now");
    await chat.sent();
    expect((await room.api.history(room.channel)).map((m) => m.sender)).toEqual(["ann"]);
    expect((await room.api.history(other)).map((m) => m.sender)).toEqual(["ben"]);

    await page.goto("about:blank");
    await page.goto(`${room.url}/#token=garbage`);
    await expect(page.getByTestId("token-reason")).toContainText("not a valid token");
  });

  test("without a token the page asks for one", async ({ browser, room, watch }) => {
    const context = await browser.newContext();
    const page = await context.newPage();
    watch(page);
    await page.goto(room.url);
    await expect(page.getByTestId("token-form")).toBeVisible();
    await context.close();
  });
});

test("the theme is dark or light, as the system or the user chooses", async ({ enter }) => {
  const chat = await enter("ann", { options: { colorScheme: "dark" } });
  const { page } = chat;
  const root = page.locator("html");
  await expect(root).toHaveAttribute("data-theme", "dark");
  const text = () => page.evaluate(() => getComputedStyle(document.body).color);
  const dark = await text();
  await page.getByTestId("theme").click();
  await expect(root).toHaveAttribute("data-theme", "light");
  expect(await text()).not.toBe(dark);
  await page.reload();
  await expect(root).toHaveAttribute("data-theme", "light");
});

import { Api } from "./rig/api.ts";
import { expect, test } from "./rig/test.ts";

test("a badge changes no height, and only unread channels are bold", async ({ room, enter }) => {
  // A user of this test only, whose list has no other channels.
  const ann = await enter(`reader-of-${room.channel}`);
  const { page } = ann;
  await ann.send("hello");
  await ann.sent();
  const other = `other-${room.channel}`;
  await page.getByTestId("channel-name").fill(other);
  await page.getByTestId("channel-name").press("Enter");
  await expect(page.getByTestId("title")).toContainText(other);
  await ann.send("and here");
  await ann.sent();
  const row = (id: string) => page.getByTestId(`channel-${id}`);
  const weight = (id: string) =>
    row(id)
      .locator(".item-name")
      .evaluate((name) => Number(getComputedStyle(name.querySelector("strong") ?? name).fontWeight));
  const before = await row(room.channel).boundingBox();
  expect(await weight(room.channel)).toBeLessThan(500);
  await room.api.send(room.channel, "news");
  await expect(page.getByTestId(`unread-${room.channel}`)).toHaveText("1");
  const after = await row(room.channel).boundingBox();
  expect(after?.height).toBe(before?.height);
  expect(after?.height).toBe((await row(other).boundingBox())?.height);
  expect(await weight(room.channel)).toBeGreaterThanOrEqual(700);
  expect(await weight(other)).toBeLessThan(500);
});

test("a channel for members only has a lock, an open one has none", async ({ room, enter }) => {
  const secret = `secret-${room.channel}`;
  await room.api.call("CreateChannel", { channelId: secret, membersOnly: true, members: [{ userId: "ann" }] });
  await room.api.send(secret, "hello");
  const ann = await enter("ann");
  const { page } = ann;
  await expect(page.getByTestId(`channel-${secret}`).getByTestId("members-only")).toBeVisible();
  await expect(page.getByTestId(`channel-${room.channel}`).getByTestId("members-only")).toHaveCount(0);
  await page.getByTestId(`channel-${secret}`).click();
  await expect(page.getByTestId("title").getByTestId("members-only")).toBeVisible();
  await expect(page.getByTestId(`channel-${secret}`)).toHaveAccessibleName(/members only/);
});

const many = 3_000;

test("of thousands of channels only the visible rows are in the document", async ({ room, enter, playwright }) => {
  test.slow();
  const user = `owner-of-${room.channel}`;
  const request = await playwright.request.newContext();
  const api = new Api(request, room.server.url, room.server.token(user));
  const name = (i: number) => `${room.channel}-${String(i).padStart(5, "0")}`;
  await api.sendEach(Array.from({ length: many }, (_, i) => name(i)));
  await request.dispose();

  const ann = await enter(user, { channel: name(0) });
  const { page } = ann;
  const list = page.getByTestId("channel-list");
  const rows = list.getByRole("button");
  const drawn = async () => {
    expect(await rows.count(), "rows in the document").toBeLessThan(60);
    await expect(list.locator("[tabindex='0']"), "the row that Tab reaches").toHaveCount(1);
  };
  const at = (position: number) => list.locator(`[aria-posinset="${position}"]`).getByRole("button");
  await expect(at(1)).toBeInViewport();
  await expect(list.getByRole("listitem").first()).toHaveAttribute("aria-setsize", String(many));
  await drawn();
  // Every channel can be reached: by scrolling, by the keyboard and by its name.
  await list.evaluate((box) => box.scrollTo({ top: box.scrollHeight / 2 }));
  await expect(at(many / 2 + 4)).toBeInViewport();
  await drawn();
  await list.evaluate((box) => box.scrollTo({ top: box.scrollHeight }));
  await at(many).focus();
  await page.keyboard.press("Home");
  await expect(at(1)).toBeFocused();
  await expect(at(1)).toBeInViewport();
  await drawn();
  await page.getByTestId("channel-name").fill("-00042");
  await expect(page.getByTestId(`channel-${name(42)}`)).toBeInViewport();
  await expect(rows).toHaveCount(1);
});

test("the list is one Tab stop, in which the arrow keys move", async ({ room, enter }) => {
  const user = `owner-of-${room.channel}`;
  const ids = ["a", "b", "c", "d"].map((end) => `${room.channel}-${end}`);
  for (const channelId of ids) {
    await room.api.call("CreateChannel", { channelId, membersOnly: true, members: [{ userId: user }] });
    await room.api.send(channelId, "hello");
  }
  const ann = await enter(user, { channel: ids[3] ?? "" });
  const { page } = ann;
  const row = (i: number) => page.getByTestId(`channel-${ids[i]}`);
  const list = page.getByTestId("channel-list");
  await expect(list.getByRole("button")).toHaveCount(4);
  await expect(list.locator("[tabindex='0']")).toHaveCount(1);

  await page.getByTestId("channel-name").focus();
  await page.keyboard.press("Tab");
  await expect(row(3)).toBeFocused(); // the open one
  await page.keyboard.press("ArrowDown");
  await expect(row(2)).toBeFocused();
  await page.keyboard.press("End");
  await expect(row(0)).toBeFocused();
  await page.keyboard.press("ArrowUp");
  await expect(row(1)).toBeFocused();
  await page.keyboard.press("Tab");
  await expect(list.locator(":focus")).toHaveCount(0);
  await page.keyboard.press("Shift+Tab");
  await expect(row(1)).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByTestId("title")).toContainText(ids[1] ?? "");
});

test("the first Tab stop of a page skips the sidebar", async ({ enter, page: plain, room }) => {
  const { page } = await enter("ann");
  await page.reload();
  await expect(page.getByTestId("composer")).toBeFocused();
  await page.evaluate(() => (document.activeElement as HTMLElement).blur());
  await page.getByTestId("to-chat").focus();
  // Past the buttons that sign out and change the theme.
  for (let i = 0; i < 3; i++) await page.keyboard.press("Shift+Tab");
  await expect(page.getByTestId("skip")).toBeFocused();
  await expect(page.getByTestId("skip")).toBeInViewport({ ratio: 1 });
  await page.keyboard.press("Enter");
  await expect(page.getByRole("main")).toBeFocused();
  await page.keyboard.press("Tab");
  await expect(page.getByTestId("messages")).toBeFocused();
  // The queue page has the same frame.
  await plain.goto(`${room.url}/queues#token=${room.server.token("operator", "admin")}`);
  await expect(plain.getByTestId("skip")).toHaveCount(1);
});

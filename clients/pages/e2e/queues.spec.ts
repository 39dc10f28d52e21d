import { randomUUID } from "node:crypto";
import type { Browser, Page } from "@playwright/test";
import { operator, Queues, shown } from "./rig/queues.ts";
import { expect, type Room, test } from "./rig/test.ts";

interface Board {
  page: Page;
  queues: Queues;
  topic: string;
}

/** open opens a new topic's page as an operator. */
async function open(
  browser: Browser,
  room: Room,
  watch: (page: Page) => void,
  options: Parameters<Browser["newContext"]>[0] = {},
): Promise<Board> {
  const token = room.server.token("operator", ...operator);
  const queues = new Queues(room.server.url, token);
  const topic = `jobs-${randomUUID().slice(0, 8)}`;
  await queues.make(topic);
  const context = await browser.newContext(options);
  const page = await context.newPage();
  watch(page);
  await page.goto(`${room.url}/queues#token=${token}&topic=${topic}`);
  await expect(page.getByTestId("title")).toHaveText(topic);
  return { page, queues, topic };
}

/** agrees waits until the page shows the API's counts. */
async function agrees({ page, queues, topic }: Board): Promise<void> {
  await expect(async () => {
    expect(await shown(page)).toEqual(await queues.numbers(topic));
  }).toPass();
}

async function makeTopic(page: Page, name: string): Promise<void> {
  await page.getByTestId("new-topic").click();
  await page.getByTestId("field-name").fill(name);
  await page.getByTestId("confirm").click();
}

test("depth rises and falls, and dead letters are listed, read, replayed and purged", async ({
  browser,
  room,
  watch,
}) => {
  const board = await open(browser, room, watch);
  const { page, queues, topic } = board;
  expect(page.url()).not.toContain("token");
  await expect(page.getByTestId("state")).toHaveAttribute("data-state", "live");
  await agrees(board);

  await queues.produce(topic, [
    ...Array.from({ length: 18 }, (_, i) => `job ${i}`),
    Uint8Array.of(0, 255, 7),
    "größe <b>",
  ]);
  await expect(page.getByTestId("tile-unread")).toHaveText("20");
  await expect(page.getByTestId("tile-in")).toHaveText(/[1-9]/);
  await expect(page.getByTestId("group-workers").locator("[data-column=lag]")).toHaveText("20");
  await agrees(board);

  await queues.consume(topic, 20, async (stream, deliveries) => {
    await expect(page.getByTestId("tile-pending")).toHaveText("20");
    await page.getByTestId("part-pending").click();
    await expect(page.getByTestId("pending").locator("tbody tr")).toHaveCount(20);
    await expect(page.getByTestId("pending-total")).toHaveText("20 in flight");
    await page.getByTestId("part-partitions").click();
    for (const partition of [0, 1]) {
      await expect(page.getByTestId(`partition-${partition}`)).toContainText("e2e-worker");
    }
    await agrees(board);
    const text = (payload: Uint8Array) => new TextDecoder().decode(payload);
    const poison = deliveries.filter((d) => !text(d.payload).startsWith("job ") || text(d.payload) === "job 3");
    await queues.bury(topic, stream, poison);
    await queues.ack(
      topic,
      stream,
      deliveries.filter((d) => !poison.includes(d)),
    );
  });
  await expect(page.getByTestId("tile-dead")).toHaveText("3");
  await agrees(board);

  await page.getByTestId("part-dead").click();
  const letters = page.getByTestId("letter");
  await expect(letters).toHaveCount(3);
  await expect(letters.first()).toContainText("cannot do it");
  const binary = letters.filter({ hasText: "00 ff 07" });
  await binary.getByTestId("unfold").click();
  await expect(binary.getByTestId("payload")).toHaveAttribute("data-kind", "hex");
  await expect(binary.getByTestId("payload")).toContainText("000000  00 ff 07");
  await expect(binary).toContainText("e2e");
  const text = letters.filter({ hasText: "größe <b>" });
  await text.getByTestId("unfold").click();
  await expect(text.getByTestId("payload")).toHaveText("größe <b>");

  await text.getByTestId("replay-one").click();
  await expect(page.getByTestId("letters-note")).toHaveText("Replayed 1 dead letter.");
  await expect(letters).toHaveCount(2);
  await expect(page.getByTestId("tile-dead")).toHaveText("2");
  await agrees(board);
  await queues.consume(topic, 1, async (stream, deliveries) => {
    expect(new TextDecoder().decode(deliveries[0]?.payload)).toBe("größe <b>");
    await queues.ack(topic, stream, deliveries);
  });

  await page.getByTestId("select-all").check();
  await page.getByTestId("replay").click();
  await expect(page.getByTestId("no-letters")).toBeVisible();
  await expect(page.getByTestId("letters-note")).toHaveText("Replayed 2 dead letters.");
  await agrees(board);
  await queues.consume(topic, 2, (stream, deliveries) => queues.bury(topic, stream, deliveries));
  await expect(letters).toHaveCount(2); // They appear without a reload.

  await page.getByTestId("replay").click();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("no-letters")).toBeVisible();
  await queues.consume(topic, 2, (stream, deliveries) => queues.bury(topic, stream, deliveries));
  await expect(letters).toHaveCount(2);

  await page.getByTestId("purge").click();
  await expect(page.getByTestId("confirm")).toBeDisabled();
  await page.getByTestId("confirm-name").fill(topic);
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("letters-note")).toHaveText("Purged 2 dead letters.");
  await expect(page.getByTestId("no-letters")).toBeVisible();
  await agrees(board);
  expect((await queues.numbers(topic)).dead).toBe(0);
  await page.context().close();
});

test("a topic and a group are created, paused and resumed by keyboard", async ({ browser, room, watch }) => {
  const { page, queues } = await open(browser, room, watch);
  const name = `made-${randomUUID().slice(0, 8)}`;
  const keys = page.keyboard;
  await page.getByTestId("new-topic").focus();
  await keys.press("Enter");
  await expect(page.getByTestId("field-name")).toBeFocused();
  await keys.type(name);
  await keys.press("Tab");
  await keys.press("Control+A");
  await keys.type("3");
  await keys.press("Enter");
  await expect(page.getByTestId("title")).toHaveText(name);
  await expect(page.getByTestId("no-groups")).toBeVisible();
  const { topic } = await queues.admin.getTopic({ topic: name });
  expect([topic?.partitions, topic?.retry?.maxAttempts]).toEqual([3, 16]);

  await page.getByTestId("new-group").click();
  await page.getByTestId("field-name").fill("mail");
  await keys.press("Enter");
  await expect(page.getByTestId("group-mail")).toBeVisible();

  await page.getByTestId("pause").click();
  await page.getByTestId("pause-produce").check();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("paused").first()).toHaveText("producing paused");
  const paused = (await queues.admin.getTopic({ topic: name })).topic;
  expect([paused?.producePaused, paused?.consumePaused]).toEqual([true, false]);
  await page.getByTestId("resume").click();
  await expect(page.getByTestId("paused")).toHaveCount(0);
  expect((await queues.admin.getTopic({ topic: name })).topic?.producePaused).toBe(false);
  await page.context().close();
});

test("on a phone in dark mode there is a list and a way back, and nothing overflows the screen", async ({
  browser,
  room,
  watch,
}) => {
  const { page, topic } = await open(browser, room, watch, {
    viewport: { width: 390, height: 844 },
    hasTouch: true,
    isMobile: true,
    colorScheme: "dark",
  });
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
  const beside = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  for (const part of ["overview", "partitions", "pending", "dead"]) {
    await page.getByTestId(`part-${part}`).tap();
    expect(await beside(), part).toBeLessThanOrEqual(0);
  }
  await page.getByTestId("back").tap();
  await page.getByTestId(`topic-${topic}`).tap();
  await expect(page.getByTestId("charts")).toBeVisible();
  await page.context().close();
});

test("an unknown topic shows a message, and the chat page is one link away", async ({ browser, room, watch }) => {
  const { page } = await open(browser, room, watch);
  await page.evaluate(() => {
    location.hash = "topic=no-such";
  });
  await expect(page.getByTestId("missing")).toBeVisible();
  await page.getByTestId("to-chat").click();
  await expect(page.getByTestId("channel-list")).toBeVisible();
  await page.getByTestId("to-queues").click();
  await expect(page.getByTestId("topics")).toBeVisible();
  await page.context().close();
});

test.describe("failures", () => {
  test.use({ faults: true });

  test("the page reports that the server is unreachable, and recovers", async ({ browser, room, watch }) => {
    const board = await open(browser, room, watch);
    const { page, queues, topic } = board;
    await agrees(board);
    room.network.cut();
    await expect(page.getByTestId("trouble")).toContainText("can't be reached");
    await queues.produce(topic, ["while nobody looked"]);
    room.network.heal();
    await page.getByTestId("retry").click();
    await expect(page.getByTestId("tile-unread")).toHaveText("1");
    await expect(page.getByTestId("trouble")).toHaveCount(0);
    await page.context().close();
  });

  test("the page shows the server's errors: a token without the capability, a topic that exists", async ({
    browser,
    room,
  }) => {
    const context = await browser.newContext();
    const page = await context.newPage();
    const thrown: string[] = [];
    page.on("pageerror", (error) => thrown.push(String(error)));
    await page.goto(`${room.url}/queues#token=${room.server.token("ann")}`);
    await expect(page.getByTestId("denied")).toContainText("admin");
    await page.setViewportSize({ width: 390, height: 844 });
    await expect(page.getByTestId("denied")).toBeVisible();
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.getByTestId("token-input").fill(room.server.token("operator", ...operator));
    await page.getByTestId("token-input").press("Enter");
    await expect(page.getByTestId("state")).toHaveAttribute("data-state", "live");
    await expect(page.getByTestId("denied")).toHaveCount(0);

    const name = `twice-${randomUUID().slice(0, 8)}`;
    await makeTopic(page, name);
    await expect(page.getByTestId("title")).toHaveText(name);
    await makeTopic(page, name);
    await expect(page.getByTestId("dialog-problem")).not.toBeEmpty();
    expect(thrown).toEqual([]);
    await context.close();
  });
});

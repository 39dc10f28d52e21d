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

test("a backlog rises and falls, and dead letters are listed, read, replayed and purged", async ({
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
  await expect(page.getByTestId("tile-waiting")).toHaveText("20");
  await expect(page.getByTestId("tile-in")).toHaveText(/[1-9]/);
  await expect(page.getByTestId("group-workers").locator("[data-column=waiting]")).toHaveText("20");
  await agrees(board);

  await queues.consume(topic, 20, async (work) => {
    await expect(page.getByTestId("tile-running")).toHaveText("20");
    await page.getByTestId("part-consumers").click();
    await expect(page.getByTestId("consumer-e2e-worker")).toContainText("attached");
    await expect(page.getByTestId("consumer-e2e-worker")).toContainText("20/20");
    await page.getByTestId("part-partitions").click();
    for (const partition of [0, 1]) {
      await expect(page.getByTestId(`partition-${partition}`).locator("[data-column=node]")).not.toHaveText("none");
    }
    await agrees(board);
    const text = (payload: Uint8Array) => new TextDecoder().decode(payload);
    const { deliveries } = work;
    const poison = deliveries.filter((d) => !text(d.payload).startsWith("job ") || text(d.payload) === "job 3");
    await queues.bury(work, poison);
    await queues.ack(
      work,
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
  await expect(binary.getByTestId("headers")).toContainText("e2e");
  const text = letters.filter({ hasText: "größe <b>" });
  await text.getByTestId("unfold").click();
  await expect(text.getByTestId("payload")).toHaveText("größe <b>");

  await text.getByTestId("replay-one").click();
  await expect(page.getByTestId("letters-note")).toHaveText("Replayed 1 dead letter.");
  await expect(letters).toHaveCount(2);
  await expect(page.getByTestId("tile-dead")).toHaveText("2");
  await agrees(board);
  await queues.consume(topic, 1, async (work) => {
    expect(new TextDecoder().decode(work.deliveries[0]?.payload)).toBe("größe <b>");
    await queues.ack(work);
  });

  await page.getByTestId("select-all").check();
  await page.getByTestId("replay").click();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("no-letters")).toBeVisible();
  await expect(page.getByTestId("letters-note")).toHaveText("Replayed 2 dead letters.");
  await agrees(board);
  await queues.consume(topic, 2, (work) => queues.bury(work));
  await expect(letters).toHaveCount(2); // They appear without a reload.

  await expect(page.getByTestId("replay")).toHaveText("Replay all 2…");
  await page.getByTestId("replay").click();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("no-letters")).toBeVisible();
  await queues.consume(topic, 2, (work) => queues.bury(work));
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

test("jobs are listed by state, and retried now, rescheduled and cancelled", async ({ browser, room, watch }) => {
  const board = await open(browser, room, watch);
  const { page, queues, topic } = board;
  await queues.produce(topic, ["fails"]);
  await queues.consume(topic, 1, (work) => queues.fail(work));
  await queues.produce(topic, ["later 1", "later 2"], 3_600);

  await page.getByTestId("tile-retrying").getByRole("link").click();
  await expect(page.getByTestId("job-state")).toHaveValue("retrying");
  const jobs = page.getByTestId("job");
  await expect(jobs).toHaveCount(1);
  await expect(jobs).toContainText("cannot do it");
  await expect(jobs).toContainText("in 10 min");
  await jobs.getByRole("checkbox").check();
  await page.getByTestId("retry-jobs").click();
  await expect(page.getByTestId("jobs-note")).toHaveText("Made due 1 message.");
  await expect(page.getByTestId("no-jobs")).toBeVisible();
  await expect(page.getByTestId("tile-waiting")).toHaveText("1");

  await page.getByTestId("job-state").selectOption("scheduled");
  await expect(jobs).toHaveCount(2);
  await page.getByTestId("job-key").fill("key-1");
  await expect(jobs).toHaveCount(1);
  await jobs.getByRole("link").click();
  const detail = page.getByTestId("job-detail");
  await expect(detail.getByTestId("payload")).toHaveText("later 2");
  await expect(detail.getByTestId("headers")).toContainText("e2e");
  await expect(detail.getByTestId("job-in-workers")).toHaveAttribute("data-state", "scheduled");
  await page.getByTestId("reschedule-job").click();
  await page.getByTestId("field-delay").fill("soon");
  await expect(page.getByTestId("confirm")).toBeDisabled();
  await page.getByTestId("field-delay").fill("0");
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("job-note")).toHaveText("Rescheduled 1 message.");
  await expect(detail.getByTestId("job-in-workers")).toHaveAttribute("data-state", "waiting");
  await page.getByTestId("cancel-job").click();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("job-note")).toHaveText("Cancelled 1 message.");

  await page.goBack();
  await page.getByTestId("job-state").selectOption("");
  await expect(jobs).toHaveCount(2);
  await page.getByTestId("select-all").check();
  await page.getByTestId("cancel-jobs").click();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("jobs-note")).toHaveText("Cancelled 2 messages.");
  await expect(page.getByTestId("no-jobs")).toBeVisible();
  await agrees(board);
  await page.context().close();
});

test("a new tab shows the history that the server kept", async ({ browser, room, watch }) => {
  const first = await open(browser, room, watch);
  const { queues, topic } = first;
  await queues.produce(topic, ["one", "two"]);
  await expect(async () => {
    const { history } = await queues.admin.getTopicStats({ topic, history: true });
    expect(history.length).toBeGreaterThanOrEqual(3);
    expect(history.at(-1)?.produced).toBe(2n);
  }).toPass();
  const page = await first.page.context().newPage();
  watch(page);
  await page.goto(first.page.url());
  const backlog = page.getByTestId("charts").getByRole("slider", { name: "Backlog" });
  await expect(backlog).toHaveAttribute("aria-valuetext", "now: workers 2");
  await expect(page.getByTestId("no-history")).toHaveCount(0);
  await first.page.context().close();
});

test("a topic and a group are created, changed, paused, resumed and deleted, by keyboard first", async ({
  browser,
  room,
  watch,
}) => {
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
  await page.getByTestId("no-groups").getByRole("button").click();
  await page.getByTestId("field-name").fill("mail");
  await keys.press("Enter");
  await expect(page.getByTestId("group-mail")).toBeVisible();
  const topic = async () => (await queues.admin.getTopic({ topic: name })).topic;
  const group = async () => (await queues.admin.getGroup({ topic: name, group: "mail" })).group;
  expect([(await topic())?.partitions, (await group())?.retry?.maxAttempts]).toEqual([3, 16]);

  await page.getByTestId("produce").click();
  await page.getByTestId("field-payload").fill("hello");
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("tile-waiting")).toHaveText("1");

  await page.getByTestId("pause").click();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("paused").first()).toBeVisible();
  expect((await topic())?.paused).toBe(true);
  await page.getByTestId("resume").click();
  await expect(page.getByTestId("paused")).toHaveCount(0);
  await page.getByTestId("pause-group").click();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("group-mail").getByTestId("paused")).toBeVisible();
  expect([(await topic())?.paused, (await group())?.paused]).toEqual([false, true]);
  await page.getByTestId("resume-group").click();
  await expect(page.getByTestId("paused")).toHaveCount(0);

  await page.getByTestId("part-settings").click();
  await page.getByTestId("edit-topic").click();
  await page.getByTestId("field-maxAge").fill("1h");
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("topic-settings")).toContainText("kept for 1h");
  await page.getByTestId("edit-group").click();
  await page.getByTestId("field-maxAttempts").fill("5");
  await page.getByTestId("field-codes").fill("BAD_INPUT");
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("settings-mail")).toContainText("BAD_INPUT");
  const changed = await group();
  expect(changed?.retry?.maxAttempts).toBe(5);
  expect(changed?.retry?.maxBackoff?.seconds).toBe(600n);

  await page.getByTestId("trim-topic").click();
  await page.getByTestId("field-force").check();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("settings-note")).toContainText("Removed 1 message. 1 of them");

  await page.getByTestId("delete-topic").click();
  await page.getByTestId("confirm-name").fill(name);
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("topics")).toBeVisible();
  await expect(page.getByTestId(`topic-${name}`)).toHaveCount(0);
  await page.context().close();
});

test("the topics are filtered and sorted", async ({ browser, room, watch }) => {
  const { page, queues, topic } = await open(browser, room, watch);
  await queues.produce(topic, ["one"]);
  const prefix = `many-${randomUUID().slice(0, 8)}`;
  for (const n of [1, 2]) {
    await queues.make(`${prefix}-${n}`, 1);
    await queues.produce(
      `${prefix}-${n}`,
      Array.from({ length: n }, () => "x"),
    );
  }
  await page.goto(`${room.url}/queues#`);
  await page.getByTestId("filter").fill(`${prefix.slice(0, 9).toUpperCase()}`);
  const rows = page.getByTestId("topics").locator("tbody tr");
  await expect(rows).toHaveCount(2);
  await expect(page.getByTestId("topic-list").getByRole("link")).toHaveCount(2);
  await expect(rows.nth(1).locator("[data-column=waiting]")).toHaveText("2");
  await page.getByTestId("sort-waiting").click();
  await expect(rows.first()).toContainText(`${prefix}-2`);
  await page.getByTestId("sort-waiting").click();
  await expect(rows.first()).toContainText(`${prefix}-1`);
  await page.context().close();
});

test("a tab makes one call at a time, about one a second, and none while it is hidden", async ({
  browser,
  room,
  watch,
}) => {
  const { page, queues, topic } = await open(browser, room, watch);
  for (const n of [1, 2, 3]) {
    await queues.make(`${topic}-${n}`, 1);
  }
  await page.getByTestId("part-jobs").click();
  await expect(page.getByTestId("no-jobs")).toBeVisible();
  let calls = 0;
  let running = 0;
  let most = 0;
  const isCall = (url: string) => url.includes("/parley.");
  page.on("request", (request) => {
    if (isCall(request.url())) {
      calls++;
      most = Math.max(most, ++running);
    }
  });
  page.on("requestfinished", (request) => {
    if (isCall(request.url())) {
      running--;
    }
  });
  const begin = Date.now();
  await expect.poll(() => calls).toBeGreaterThanOrEqual(15);
  expect(most).toBe(1);
  // 68 a minute, and the calls of one round.
  expect(calls).toBeLessThanOrEqual(((Date.now() - begin) / 60_000) * 68 + 6);

  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
  });
  // The round that is under way ends. Then a message that is produced is not noticed.
  await expect.poll(() => running).toBe(0);
  await queues.produce(topic, ["unseen"]);
  const before = calls;
  const clock = Date.now();
  await expect.poll(() => Date.now() - clock, { intervals: [1_000] }).toBeGreaterThan(8_000);
  expect(calls - before).toBeLessThanOrEqual(4);
  const hidden = calls;
  await expect.poll(() => Date.now() - clock, { intervals: [1_000] }).toBeGreaterThan(14_000);
  expect(calls).toBe(hidden);
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => false });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await expect(page.getByTestId("tile-waiting")).toHaveText("1");
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
  for (const part of ["overview", "jobs", "consumers", "partitions", "dead", "settings"]) {
    await page.getByTestId(`part-${part}`).tap();
    expect(await beside(), part).toBeLessThanOrEqual(0);
  }
  await page.getByTestId("part-overview").tap();
  await expect(page.getByTestId("pause-group")).toBeAttached();
  await page.getByTestId("produce").tap();
  await expect(page.getByTestId("confirm")).toBeInViewport({ ratio: 1 });
  await page.getByTestId("cancel").tap();
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
    await expect(page.getByTestId("tile-waiting")).toHaveText("1");
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

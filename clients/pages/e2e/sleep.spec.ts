import { setTimeout as sleep } from "node:timers/promises";
import { chromium, type Page } from "@playwright/test";
import { Chat } from "./rig/chat.ts";
import { expectExactly } from "./rig/judge.ts";
import { family, heartbeat, isStopped, signal } from "./rig/process.ts";
import { expect, type Room, test } from "./rig/test.ts";

test.use({ faults: true });

/** post sends numbered messages directly to the server. */
async function post(room: Room, first: number, last: number): Promise<void> {
  for (let i = first; i <= last; i++) {
    await room.api.send(room.channel, `while it slept ${i}`);
  }
}

async function expectWakesExactly(room: Room, chat: Chat): Promise<void> {
  await chat.sent();
  const messages = await room.api.history(room.channel);
  await chat.reaches(messages.at(-1)?.seq ?? 0);
  await chat.live();
  await expectExactly(chat, messages);
  // The tab still works.
  await chat.send("awake");
  await chat.sent();
  await expectExactly(chat, await room.api.history(room.channel));
}

// A machine that sleeps stops all its processes at once. Its connections' peers continue, and may
// be gone when it wakes.
for (const [name, whileAsleep] of Object.entries({
  "its connections outlive it": async () => {},
  "its connections are reset meanwhile": async (room: Room) => room.network.reset(),
  "it wakes in a network that knows nothing of its connections": async (room: Room) => {
    room.network.stall();
    room.network.heal();
  },
  "the server is killed and started meanwhile": async (room: Room) => {
    await room.server.kill();
    await room.server.start();
  },
})) {
  test(`the machine is put to sleep, and ${name}`, async ({ room, watch, launchOptions }) => {
    const browser = await chromium.launchServer(launchOptions);
    const pid = browser.process().pid ?? 0;
    try {
      const connected = await chromium.connect(browser.wsEndpoint());
      const page = await connected.newPage();
      watch(page);
      await page.goto(`${room.url}/#token=${room.server.token("ann")}&channel=${room.channel}`);
      const chat = new Chat(page);
      await chat.live();
      await chat.send("before");
      await chat.sent();

      const processes = family(pid).filter((one) => signal(one, "SIGSTOP"));
      expect(processes.length, "Chromium has processes for its pages").toBeGreaterThan(2);
      await expect.poll(() => processes.filter((one) => !isStopped(one))).toEqual([]);
      await post(room, 1, 20);
      await whileAsleep(room);
      await post(room, 21, 40);
      await sleep(4 * heartbeat); // Longer than the page waits for a frame.
      for (const one of processes.reverse()) {
        signal(one, "SIGCONT");
      }
      await expectWakesExactly(room, chat);
    } finally {
      for (const one of family(pid)) {
        signal(one, "SIGCONT");
      }
      await browser.close();
    }
  });
}

/**
 * lifecycle freezes or unfreezes a page, as Chromium does with background tabs. A frozen page runs
 * no timers and no tasks.
 */
async function lifecycle(page: Page, state: "frozen" | "active"): Promise<void> {
  const session = await page.context().newCDPSession(page);
  await session.send("Page.setWebLifecycleState", { state });
  await session.detach();
}

test("a tab in the background is frozen", async ({ room, enter }) => {
  const [ann, ben] = await Promise.all([enter("ann"), enter("ben")]);
  await ann.send("before");
  await ann.sent();
  await lifecycle(ann.page, "frozen");
  await post(room, 1, 20);
  await room.server.kill();
  await room.server.start();
  await post(room, 21, 40);
  await expect(ben.message("while it slept 40")).toBeVisible();
  await sleep(4 * heartbeat);
  await lifecycle(ann.page, "active");
  await expectWakesExactly(room, ann);
});

test("the timers of a tab are stopped", async ({ room, enter }) => {
  const ann = await enter("ann");
  await ann.page.clock.install();
  await ann.page.reload();
  await ann.page.clock.resume();
  await ann.live();
  await ann.page.clock.pauseAt(Date.now() + 1_000);
  await post(room, 1, 20);
  room.network.cut();
  await sleep(4 * heartbeat);
  room.network.heal();
  await post(room, 21, 40);
  await ann.page.clock.fastForward(60_000);
  await ann.page.clock.resume();
  await expectWakesExactly(room, ann);
});

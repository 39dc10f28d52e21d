import { setTimeout as sleep } from "node:timers/promises";
import type { BrowserContext } from "@playwright/test";
import { Chat } from "./rig/chat.ts";
import { expectExactly, expectOnce } from "./rig/judge.ts";
import { expect, type Room, test } from "./rig/test.ts";

test.use({ faults: true });

const perTab = 30;

/** say sends messages from a tab, one each 50 ms. */
async function say(chat: Chat, texts: string[]): Promise<void> {
  for (const text of texts) {
    await chat.send(text);
    await sleep(50);
  }
}

/**
 * throughFault sends from tabs during a fault; post sends a message of a third user. In the end
 * every message must be stored once and in its sender's order, and the tabs must show exactly that.
 */
async function throughFault(
  room: Room,
  tabs: Record<string, Chat>,
  fault: (post: (text: string) => Promise<void>) => Promise<void>,
): Promise<void> {
  const sent: Record<string, string[]> = { tester: [] };
  const post = async (text: string) => {
    await room.api.send(room.channel, text);
    sent.tester?.push(text);
  };
  const talks = Object.entries(tabs).map(([user, chat]) => {
    const texts = Array.from({ length: perTab }, (_, i) => `${user} ${i}`);
    sent[user] = texts;
    return say(chat, texts);
  });
  await Promise.all([fault(post), ...talks]);
  for (const chat of Object.values(tabs)) {
    await chat.sent();
  }
  const messages = await room.api.history(room.channel);
  expectOnce(messages, sent);
  for (const chat of Object.values(tabs)) {
    await chat.reaches(messages.at(-1)?.seq ?? 0);
    await chat.live();
    await expectExactly(chat, messages);
  }
}

async function expectAway(...chats: Chat[]): Promise<void> {
  for (const chat of chats) {
    await expect(chat.state).not.toHaveAttribute("data-state", "live");
  }
}

test("the server is killed and started again, twice, while both tabs send", async ({ room, enter }) => {
  const [ann, ben] = await Promise.all([enter("ann"), enter("ben")]);
  await throughFault(room, { ann, ben }, async (post) => {
    for (let i = 0; i < 2; i++) {
      await expect(ben.message(`ann ${3 + 10 * i}`)).toBeAttached();
      await room.server.kill();
      await expectAway(ann, ben);
      await room.server.start();
      await post(`after start ${i}`);
      await ann.live();
    }
  });
});

test("the network is cut", async ({ room, enter }) => {
  const [ann, ben] = await Promise.all([enter("ann"), enter("ben")]);
  await throughFault(room, { ann, ben }, async (post) => {
    await expect(ben.message("ann 3")).toBeAttached();
    room.network.cut();
    await post("while it was cut");
    await expectAway(ann, ben);
    room.network.heal();
  });
});

test("the network stalls", async ({ room, enter }) => {
  const [ann, ben] = await Promise.all([enter("ann"), enter("ben")]);
  await throughFault(room, { ann, ben }, async (post) => {
    await expect(ben.message("ann 3")).toBeAttached();
    room.network.stall();
    await post("into the silence");
    await expectAway(ann, ben);
    room.network.heal();
  });
});

test("a tab goes offline and comes back", async ({ room, enter }) => {
  const [ann, ben] = await Promise.all([enter("ann"), enter("ben")]);
  await throughFault(room, { ann, ben }, async (post) => {
    await expect(ben.message("ann 3")).toBeAttached();
    await ann.page.context().setOffline(true);
    room.network.reset(); // Chromium only refuses new connections, so break the existing ones.
    await post("while ann was offline");
    await expect(ben.message("while ann was offline")).toBeAttached();
    await expectAway(ann);
    await expect(ann.message("while ann was offline")).toHaveCount(0);
    await ann.page.context().setOffline(false);
  });
});

/**
 * unplug blocks the API calls of a profile's tabs, but not the page itself. The returned function
 * unblocks them.
 */
async function unplug(context: BrowserContext): Promise<() => Promise<void>> {
  const calls = /\/parley\.v1\./;
  await context.route(calls, (route) => route.abort("internetdisconnected"));
  return () => context.unroute(calls);
}

test("a reload while offline keeps unsent messages, and so does another tab", async ({ room, enter }) => {
  const ann = await enter("ann");
  const ben = await enter("ben");
  const context = ann.page.context();
  await ann.send("sent before");
  await ann.sent();
  const plug = await unplug(context);
  room.network.reset();
  const texts = ["unsent one", "unsent two", "unsent three"];
  for (const text of texts) {
    await ann.send(text);
  }
  await expect(ann.pending).toHaveCount(3);

  await ann.page.reload();
  await expect(ann.pending).toHaveCount(3);
  await ann.page.close();
  const page = await context.newPage();
  await page.goto(`${room.url}/#token=${room.server.token("ann")}&channel=${room.channel}`);
  const again = new Chat(page);
  await expect(again.pending).toHaveCount(3);

  await plug();
  await again.sent();
  const messages = await room.api.history(room.channel);
  expectOnce(messages, { ann: ["sent before", ...texts] });
  await expectExactly(again, messages);
  await ben.reaches(messages.at(-1)?.seq ?? 0);
  await expectExactly(ben, messages);
});

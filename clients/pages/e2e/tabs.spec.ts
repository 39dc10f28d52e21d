import { randomUUID } from "node:crypto";
import { Api } from "./rig/api.ts";
import { Chat } from "./rig/chat.ts";
import { expectExactly, expectOnce } from "./rig/judge.ts";
import { Server } from "./rig/process.ts";
import { everything, expect, test } from "./rig/test.ts";

// Over HTTP/1.1 a browser has six connections to one host, and each tab's stream holds one.
const tabs = 10;

/** talkInAll sends from every tab and checks that every tab shows all messages. */
async function talkInAll(chats: Chat[], api: Api, channel: string): Promise<void> {
  await Promise.all(chats.map((chat) => chat.live()));
  for (const [i, chat] of chats.entries()) {
    await chat.send(`tab ${i}`);
    await chat.sent();
  }
  const messages = await api.history(channel);
  expectOnce(messages, { ann: chats.map((_, i) => `tab ${i}`) });
  for (const chat of chats) {
    await chat.reaches(messages.at(-1)?.seq ?? 0);
    await chat.live();
    await expectExactly(chat, messages);
  }
}

test("ten tabs of one browser at once, over plain http", async ({ room, enter }) => {
  const first = await enter("ann");
  const context = first.page.context();
  const others = Array.from({ length: tabs - 1 }, () => enter("ann", { context }));
  const chats = [first, ...(await Promise.all(others))];
  await talkInAll(chats, room.api, room.channel);
});

test("ten tabs of one browser at once, over TLS", async ({ browser, watch }) => {
  const server = new Server({ tls: true });
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  try {
    await server.start();
    expect(server.url).toMatch(/^https:/);
    const channel = `room-${randomUUID().slice(0, 8)}`;
    const protocols = new Set<string>();
    const chats: Chat[] = [];
    while (chats.length < tabs) {
      const page = await context.newPage();
      watch(page);
      await page.goto(`${server.url}/#token=${server.token("ann")}&channel=${channel}`);
      chats.push(new Chat(page));
    }
    await talkInAll(chats, new Api(context.request, server.url, server.token("tester", everything)), channel);
    for (const { page } of chats) {
      const used = await page.evaluate(() =>
        performance.getEntriesByType("resource").map((entry) => (entry as PerformanceResourceTiming).nextHopProtocol),
      );
      for (const protocol of used.filter(Boolean)) {
        protocols.add(protocol);
      }
    }
    expect([...protocols]).toEqual(["h2"]);
  } finally {
    await context.close();
    await server.close();
  }
});

import { randomUUID } from "node:crypto";
import type { APIRequestContext, BrowserContext, Page } from "@playwright/test";
import { Api } from "./rig/api.ts";
import { Chat } from "./rig/chat.ts";
import { Server } from "./rig/process.ts";
import { test as base, everything, expect } from "./rig/test.ts";

// The heartbeat interval of a server by default. By its heartbeats alone, a page notices the silence
// after 37.5 s.
const heartbeat = 15_000;

interface Fixtures {
  /** A server with the default heartbeats, a chat of ann on it, and a client of it. */
  quiet: { server: Server; chat: Chat; channel: string; api: Api };
}

const test = base.extend<Fixtures>({
  quiet: async ({ context, watch }, use) => {
    const server = new Server({ heartbeat });
    try {
      await server.start();
      await use(await enter(server, context, watch));
    } finally {
      await context.close();
      await server.close();
    }
  },
});

test.use({ faults: true });

async function enter(server: Server, context: BrowserContext, watch: (page: Page) => void) {
  const channel = `room-${randomUUID().slice(0, 8)}`;
  const page = await context.newPage();
  watch(page);
  await page.goto(`${server.url}/#token=${server.token("ann")}&channel=${channel}`);
  const chat = new Chat(page);
  await chat.live();
  await chat.send("before");
  await chat.sent();
  return { server, chat, channel, api: direct(server, context.request) };
}

function direct(server: Server, request: APIRequestContext): Api {
  return new Api(request, server.url, server.token("tester", everything));
}

/** away waits until the page no longer shows "online", and returns the milliseconds until then. */
async function away(chat: Chat, timeout: number): Promise<number> {
  const began = Date.now();
  await expect(chat.state).not.toHaveAttribute("data-state", "live", { timeout });
  await expect(chat.state).not.toContainText("online");
  return Date.now() - began;
}

/** recovers checks that the page is online again and shows what is written from now on. */
async function recovers({ chat, channel, api }: Fixtures["quiet"]): Promise<void> {
  await chat.live();
  await api.send(channel, "after");
  await expect(chat.message("after")).toBeVisible();
}

test("over a frozen server an idle page leaves online within 8 s", async ({ quiet }) => {
  const { server, chat } = quiet;
  await server.freeze();
  await away(chat, 9_000);
  // It does not come back while nobody answers.
  await expect(chat.page.getByTestId("trouble")).toBeVisible();
  server.thaw();
  await recovers(quiet);
});

test("over a frozen server a send leaves online sooner, and is stored once in the end", async ({ quiet }) => {
  const { server, chat, channel, api } = quiet;
  await server.freeze();
  await chat.send("into the silence");
  await away(chat, 5_500);
  await expect(chat.pending).toHaveCount(1);
  server.thaw();
  await chat.sent();
  await recovers(quiet);
  const texts = (await api.history(channel)).map((m) => m.content);
  expect(texts).toEqual(["before", "into the silence", "after"]);
});

test("a browser that goes offline is not online, although its connection still stands", async ({ quiet }) => {
  const { chat } = quiet;
  const context = chat.page.context();
  await context.setOffline(true);
  await away(chat, 2_000);
  await context.setOffline(false);
  await recovers(quiet);
});

test("an idle page stays online", async ({ quiet }) => {
  const { chat } = quiet;
  await chat.page.evaluate(() => {
    const state = document.querySelector<HTMLElement>("[data-testid=state]");
    const left = new MutationObserver(() => {
      document.body.dataset.left = state?.dataset.state ?? "";
    });
    if (state) left.observe(state, { attributes: true });
  });
  const probes = () =>
    chat.page.evaluate(
      () => performance.getEntriesByType("resource").filter(({ name }) => name.endsWith("/GetServerInfo")).length,
    );
  await expect.poll(probes).toBeGreaterThanOrEqual(3);
  expect(await chat.page.evaluate(() => document.body.dataset.left)).toBeUndefined();
});

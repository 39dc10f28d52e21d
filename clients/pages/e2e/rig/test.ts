import { randomUUID } from "node:crypto";
import { type BrowserContext, type BrowserContextOptions, test as base, expect, type Page } from "@playwright/test";
import { Api } from "./api.ts";
import { Chat } from "./chat.ts";
import { Network } from "./network.ts";
import { Server } from "./process.ts";

/** Room is a channel for one test on a server, and the network in front of that server. */
export interface Room {
  channel: string;
  server: Server;
  network: Network;
  /** The page's address through the network. */
  url: string;
  /**
   * A client that calls the server directly, not through the network, as a user with all
   * capabilities for channels.
   */
  api: Api;
}

interface Fixtures {
  /**
   * True for tests in which requests fail: the network or the server is broken, or the server
   * refuses (401, 403). watch then accepts these requests, which Chromium logs as errors.
   */
  faults: boolean;
  room: Room;
  /**
   * enter opens a room's channel in a new tab as a user, with a new browser profile or a given one.
   * The default capabilities are those of a user who chats, without presence.
   */
  enter: (
    user: string,
    where?: { context?: BrowserContext; options?: BrowserContextOptions; channel?: string; capabilities?: string[] },
  ) => Promise<Chat>;
  /**
   * watch fails the test if a page logs an error or a warning, such as a violation of its policy,
   * throws, or opens a dialog. A look-up that finds no channel is accepted: Chromium logs it as an
   * error.
   */
  watch: (page: Page) => void;
}

interface WorkerFixtures {
  server: Server;
}

/** The capabilities of a user who chats and is online. */
export const present = ["channel:*=send,history,subscribe", "presence=connect,watch"];

/** A capability with all actions on all channels. */
export const everything = "channel:*=send,history,subscribe,moderate,send_as,manage";

/** lookup returns the calls by which a page finds out that something does not exist. */
function lookup(page: Page): RegExp {
  return new URL(page.url()).pathname === "/assistant" ? /\/UpdateSubscription$/ : /\/GetChannel$/;
}

export const test = base.extend<Fixtures, WorkerFixtures>({
  faults: [false, { option: true }],

  server: [
    // biome-ignore lint/correctness/noEmptyPattern: Playwright reads a fixture's dependencies from it
    async ({}, use) => {
      const server = new Server();
      try {
        await server.start();
        await use(server);
      } finally {
        await server.close();
      }
    },
    { scope: "worker" },
  ],

  room: async ({ server, playwright }, use) => {
    const network = new Network(server.port);
    await network.start();
    const url = `http://127.0.0.1:${network.port}`;
    const request = await playwright.request.newContext();
    await use({
      channel: `room-${randomUUID().slice(0, 8)}`,
      server,
      network,
      url,
      api: new Api(request, server.url, server.token("tester", everything)),
    });
    await request.dispose();
    await network.close();
  },

  watch: async ({ faults }, use) => {
    const problems: string[] = [];
    await use((page) => {
      page.on("pageerror", (error) => problems.push(`thrown: ${error.stack ?? error.message}`));
      page.on("dialog", (dialog) => {
        problems.push(`dialog: ${dialog.message()}`);
        void dialog.dismiss();
      });
      page.on("console", (message) => {
        const failed = /^Failed to load resource: (?:net::ERR_|.* (?<status>\d{3}) )/.exec(message.text());
        const looksUp = failed?.groups?.status === "404" && lookup(page).test(message.location().url);
        const expected =
          looksUp || (faults && failed !== null && [undefined, "401", "403"].includes(failed.groups?.status));
        if (["error", "warning"].includes(message.type()) && !expected) {
          problems.push(`${message.type()}: ${message.text()} (${message.location().url})`);
        }
      });
    });
    expect(problems).toEqual([]);
  },

  enter: async ({ browser, room, watch }, use) => {
    const contexts: BrowserContext[] = [];
    await use(async (user, where = {}) => {
      let { context } = where;
      if (context === undefined) {
        context = await browser.newContext(where.options);
        contexts.push(context);
      }
      const page = await context.newPage();
      watch(page);
      const token = room.server.token(user, ...(where.capabilities ?? []));
      await page.goto(`${room.url}/#token=${token}&channel=${where.channel ?? room.channel}`);
      const chat = new Chat(page);
      await chat.live();
      return chat;
    });
    for (const context of contexts) {
      await context.close();
    }
  },
});

export { expect };

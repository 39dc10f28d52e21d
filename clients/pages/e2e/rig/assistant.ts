import { Client, live, type Message, type OpenMessage, type Subscription } from "@parleyhq/sdk";
import { expect, type Locator, type Page } from "@playwright/test";
import type { Server } from "./process.ts";

/** The capabilities of a user who talks with the assistant. */
export const talks = ["session:*=append,history,subscribe"];

/** Backend is the assistant's program, in which the test writes the answers. Close it when done. */
export class Backend {
  readonly client: Client;

  constructor(server: Server) {
    const capabilities = "session:*=append,history,subscribe,send_as,manage";
    this.client = new Client(server.url, { token: server.token("assistant", capabilities) });
  }

  /** answer begins an answer in a session, and writes the first words. */
  async answer(sessionId: string, words = ""): Promise<OpenMessage> {
    const answer = await this.client.session(sessionId).open("assistant");
    await answer.write(words);
    return answer;
  }

  /** say appends a whole answer. */
  async say(sessionId: string, text: string): Promise<void> {
    await this.client.session(sessionId).append("assistant", text);
  }

  /** messages returns the messages of a session, without those that were deleted. */
  async messages(sessionId: string): Promise<Message[]> {
    const found: Message[] = [];
    for await (const message of this.client.session(sessionId).messages({ afterSeq: 0 })) {
      if (message.status !== "recalled") {
        found.push(message);
      }
    }
    return found;
  }

  /** prompts subscribes to a session as an assistant does. */
  prompts(sessionId: string): Subscription {
    return this.client.subscribe(live(this.client.session(sessionId).channelId));
  }

  close(): void {
    this.client.close();
  }
}

/** AssistantPage is the page in one tab. */
export class AssistantPage {
  readonly page: Page;
  readonly composer: Locator;
  readonly entries: Locator;
  readonly answers: Locator;
  readonly state: Locator;

  constructor(page: Page) {
    this.page = page;
    this.composer = page.getByTestId("composer");
    this.entries = page.getByTestId("entry");
    this.answers = page.locator("[data-testid=entry][data-role=assistant]");
    this.state = page.getByTestId("state");
  }

  async live(): Promise<void> {
    await expect(this.state).toHaveAttribute("data-state", "live");
  }

  /** ask sends a prompt, and returns the id of the session once the server has the prompt. */
  async ask(text: string): Promise<string> {
    const before = await this.entries.count();
    await this.composer.fill(text);
    await this.composer.press("Enter");
    await expect(this.entries).toHaveCount(before + 1);
    await expect(this.page.getByTestId("pending")).toHaveCount(0);
    return new URL(this.page.url()).hash.replace("#session=", "");
  }

  /** content returns the text of an entry. */
  content(entry: Locator): Locator {
    return entry.getByTestId("content");
  }

  /** texts returns the text of each entry. */
  async texts(): Promise<string[]> {
    return await this.entries.getByTestId("content").allInnerTexts();
  }
}

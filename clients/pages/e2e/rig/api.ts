import { randomUUID } from "node:crypto";
import type { APIRequestContext } from "@playwright/test";

/**
 * Message is a message as the API returns it in JSON. The tests read it without the SDK, which is
 * part of what they test.
 */
export interface Message {
  seq: number;
  sender: string;
  type: string;
  status: "sent" | "edited" | "recalled";
  content: string;
  clientMsgId: string;
}

/** Api calls a server as one user. */
export class Api {
  readonly #request: APIRequestContext;
  readonly #url: string;
  readonly #token: string;

  constructor(request: APIRequestContext, url: string, token: string) {
    this.#request = request;
    this.#url = url;
    this.#token = token;
  }

  async call<T>(method: string, data: object): Promise<T> {
    const response = await this.#request.post(`${this.#url}/parley.v1.MessageService/${method}`, {
      headers: { authorization: `Bearer ${this.#token}` },
      data,
      maxRetries: 3, // For a connection that the end of the server broke. A repeat has the same ids.
    });
    if (!response.ok()) {
      throw new Error(`${method}: ${response.status()} ${await response.text()}`);
    }
    return (await response.json()) as T;
  }

  async send(channelId: string, content: string): Promise<{ seq: number; msgId: string }> {
    const sent = await this.call<{ seq: string; msgId: string }>("SendMessage", {
      channelId,
      content,
      clientMsgId: randomUUID(),
    });
    return { seq: Number(sent.seq), msgId: sent.msgId };
  }

  /** sendAll sends messages to a channel in order. */
  async sendAll(channelId: string, contents: string[]): Promise<void> {
    await this.#sendBatches(contents.map((content) => ({ channelId, content })));
  }

  /** sendEach sends one message to each channel, in order. */
  async sendEach(channelIds: string[]): Promise<void> {
    await this.#sendBatches(channelIds.map((channelId) => ({ channelId, content: `hello ${channelId}` })));
  }

  // Sends 500 messages per request.
  async #sendBatches(all: { channelId: string; content: string }[]): Promise<void> {
    for (let i = 0; i < all.length; i += 500) {
      const messages = all.slice(i, i + 500).map((one) => ({ ...one, clientMsgId: randomUUID() }));
      const { results } = await this.call<{ results: { error?: unknown }[] }>("SendMessages", { messages });
      const refused = results.find((r) => r.error !== undefined);
      if (refused !== undefined) {
        throw new Error(`SendMessages: ${JSON.stringify(refused.error)}`);
      }
    }
  }

  /** history returns all messages of a channel in order. */
  async history(channelId: string): Promise<Message[]> {
    const messages: Message[] = [];
    let pageToken = "";
    do {
      const page = await this.call<{ messages?: Record<string, string>[]; nextPageToken?: string }>("ListMessages", {
        channelId,
        afterSeq: "0",
        pageSize: 1000,
        pageToken,
      });
      for (const m of page.messages ?? []) {
        messages.push({
          seq: Number(m.seq),
          sender: m.fromId ?? "",
          type: m.msgType ?? "",
          status: (m.status ?? "").replace("MESSAGE_STATUS_", "").toLowerCase() as Message["status"],
          content: m.content ?? "",
          clientMsgId: m.clientMsgId ?? "",
        });
      }
      pageToken = page.nextPageToken ?? "";
    } while (pageToken !== "");
    return messages;
  }
}

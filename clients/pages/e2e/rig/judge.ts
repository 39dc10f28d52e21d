import { expect } from "@playwright/test";
import type { Message } from "./api.ts";
import type { Chat, Row } from "./chat.ts";

/** row gives the row that a page must show of a message. A recalled one has no text. */
export function row({ seq, sender, type, status, content }: Message): Row {
  return { seq, sender, type, status, content };
}

/**
 * expectExactly walks through a page's log and holds it to the messages: each is there, once and as it is, nothing else is, and
 * whatever stands together stands in the log's order with nothing left out.
 */
export async function expectExactly(chat: Chat, messages: Message[]): Promise<void> {
  const { rows, views } = await chat.read();
  const shown = rows.map((r) => (r.status === "recalled" ? { ...r, content: "" } : r));
  expect(shown).toEqual(messages.map(row));
  const order = messages.map((m) => m.seq);
  for (const view of views) {
    const first = order.indexOf(view[0] ?? Number.NaN);
    expect(view, "rows that stand together").toEqual(first < 0 ? [] : order.slice(first, first + view.length));
  }
}

/** expectOnce holds a channel to what its senders sent: every text once, and each sender's in the order of the sends. */
export function expectOnce(messages: Message[], sent: Record<string, string[]>): void {
  for (const [sender, texts] of Object.entries(sent)) {
    expect(messages.filter((m) => m.sender === sender).map((m) => m.content)).toEqual(texts);
  }
  expect(messages).toHaveLength(Object.values(sent).flat().length);
}

import { expect } from "@playwright/test";
import type { Message } from "./api.ts";
import type { Chat, Row } from "./chat.ts";

/** row returns the row that a page must show for a message. A recalled message has no text. */
export function row({ seq, sender, type, status, content }: Message): Row {
  return { seq, sender, type, status, content };
}

/**
 * expectExactly scrolls through a page's log and compares it with the messages: each is shown once
 * and in its current state, there are no others, and rows that are shown together are in the log's
 * order without omissions.
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

/**
 * expectOnce compares a channel with the texts that were sent: it has each text once, and those of
 * a sender in the order of sending.
 */
export function expectOnce(messages: Message[], sent: Record<string, string[]>): void {
  for (const [sender, texts] of Object.entries(sent)) {
    expect(messages.filter((m) => m.sender === sender).map((m) => m.content)).toEqual(texts);
  }
  expect(messages).toHaveLength(Object.values(sent).flat().length);
}

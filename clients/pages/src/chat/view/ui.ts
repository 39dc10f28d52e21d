import { signal } from "@preact/signals";
import type { Message } from "../model/types";

/** editing is the message that the user edits, or null. */
export const editing = signal<Message | null>(null);

/** recalling is the message that the user is asked to confirm recalling, or null. */
export const recalling = signal<Message | null>(null);

/** maxBytes is the server's limit for the length of a message, in bytes of UTF-8. */
export const maxBytes = 65_536;

/** stopEditing closes the editor and moves the focus to the composer. */
export function stopEditing(): void {
  editing.value = null;
  focusComposer();
}

/** focusComposer moves the focus to the field for a new message. */
export function focusComposer(): void {
  document.querySelector<HTMLTextAreaElement>("[data-testid=composer]")?.focus();
}

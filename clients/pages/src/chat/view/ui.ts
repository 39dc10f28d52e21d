import { signal } from "@preact/signals";
import type { Message } from "../model/types";

/** editing is the message that the user edits, or null. */
export const editing = signal<Message | null>(null);

/** recalling is the message that the user is asked to confirm recalling, or null. */
export const recalling = signal<Message | null>(null);

/** maxBytes is the server's limit for the length of a message, in bytes of UTF-8. */
export const maxBytes = 65_536;

/** bytes returns the length of a text in bytes of UTF-8. */
export function bytes(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** stopEditing closes the editor and moves the focus to the composer. */
export function stopEditing(): void {
  editing.value = null;
  focusComposer();
}

/** focusComposer moves the focus to the field for a new message. */
export function focusComposer(): void {
  document.querySelector<HTMLTextAreaElement>("[data-testid=composer]")?.focus();
}

/** fit sets the height of a text field to that of its text. Its style limits the height. */
export function fit(field: HTMLTextAreaElement): void {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

/**
 * sends reports whether a key press sends or saves the text: Enter without Shift or Alt that does
 * not end a composition of an input method.
 */
export function sends(event: KeyboardEvent): boolean {
  return event.key === "Enter" && !event.shiftKey && !event.altKey && !event.isComposing;
}

import { signal } from "@preact/signals";
import type { Message } from "../model/types";

/** The own message whose text is being changed; null while none is. */
export const editing = signal<Message | null>(null);

/** The own message about which the user is asked whether to take it back; null while he is not. */
export const recalling = signal<Message | null>(null);

/** How long a message may be, in bytes of UTF-8: the server's limit. */
export const mostBytes = 65_536;

/** How many bytes a text takes. */
export function bytes(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** Ends the editing, and gives the focus back to the composer. */
export function stopEditing(): void {
  editing.value = null;
  focusComposer();
}

/** Gives the focus to the composer. */
export function focusComposer(): void {
  document.querySelector<HTMLTextAreaElement>("[data-testid=composer]")?.focus();
}

/** Makes a text field as high as its text, as far as its style lets it. */
export function fit(field: HTMLTextAreaElement): void {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

/** Whether a key press sends: Enter alone, and not one that ends a composition of an input method. */
export function sends(event: KeyboardEvent): boolean {
  return event.key === "Enter" && !event.shiftKey && !event.altKey && !event.isComposing;
}

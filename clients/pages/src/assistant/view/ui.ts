import { signal } from "@preact/signals";
import type { Message } from "../model/types";

/** editing is the prompt that the user edits, or null. */
export const editing = signal<Message | null>(null);

/** Question is an open dialog: it renames or deletes a session, or asks again from a prompt. */
export type Question =
  | { readonly kind: "rename" | "delete"; readonly id: string; readonly title: string }
  | { readonly kind: "again"; readonly prompt: Message; readonly text: string; readonly later: number };

/** question is the open dialog, or null. */
export const question = signal<Question | null>(null);

/** maxBytes is the server's limit for the length of a session's message, in bytes of UTF-8. */
export const maxBytes = 131_072;

/** focusComposer moves the focus to the field for a prompt. */
export function focusComposer(): void {
  document.querySelector<HTMLTextAreaElement>("[data-testid=composer]")?.focus();
}

/** stopEditing closes the editor and moves the focus to the composer. */
export function stopEditing(): void {
  editing.value = null;
  focusComposer();
}

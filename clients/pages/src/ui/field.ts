/** bytes returns the length of a text in bytes of UTF-8. */
export function bytes(text: string): number {
  return new TextEncoder().encode(text).length;
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

type Kind = "localStorage" | "sessionStorage";

/**
 * storage returns the browser's storage of the origin or of the tab. It returns null if the
 * browser's settings forbid it.
 */
export function storage(kind: Kind): Storage | null {
  try {
    return globalThis[kind];
  } catch {
    return null;
  }
}

/** stored returns the text under a key. It returns null if there is none or no storage. */
export function stored(kind: Kind, key: string): string | null {
  return storage(kind)?.getItem(key) ?? null;
}

/** store stores a text under a key. It does nothing if the storage is full or forbidden. */
export function store(kind: Kind, key: string, value: string): void {
  try {
    storage(kind)?.setItem(key, value);
  } catch {
    // The storage is full or forbidden. After a reload the user enters or chooses the text again.
  }
}

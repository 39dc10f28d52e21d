type Kind = "localStorage" | "sessionStorage";

/** storage returns the browser's storage for the origin or for the tab. It returns null where settings forbid it. */
export function storage(kind: Kind): Storage | null {
  try {
    return globalThis[kind];
  } catch {
    return null;
  }
}

/** stored returns the text under a key, or null. */
export function stored(kind: Kind, key: string): string | null {
  return storage(kind)?.getItem(key) ?? null;
}

/** store keeps a text under a key, if the browser lets it. */
export function store(kind: Kind, key: string, value: string): void {
  try {
    storage(kind)?.setItem(key, value);
  } catch {
    // The storage is full. After a reload the user enters or chooses the text again.
  }
}

type Kind = "localStorage" | "sessionStorage";

/** What the browser keeps for this page, or for this tab; null where its settings forbid it. */
export function place(kind: Kind): Storage | null {
  try {
    return globalThis[kind];
  } catch {
    return null;
  }
}

/** Reads what is kept under a key; null where there is nothing. */
export function stored(kind: Kind, key: string): string | null {
  return place(kind)?.getItem(key) ?? null;
}

/** Keeps a text under a key, as far as the browser lets it. */
export function store(kind: Kind, key: string, value: string): void {
  try {
    place(kind)?.setItem(key, value);
  } catch {
    // The storage is full: what was to be kept is asked for, or chosen, again after a reload.
  }
}

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

/**
 * forget removes what pages have stored for a user, in the tab and in the origin: the keys of the
 * form `parley.<kind>/<user, encoded>/<id>`. The user's other tabs see it as any change of the
 * origin's storage.
 */
export function forget(user: string): void {
  for (const kind of ["localStorage", "sessionStorage"] as const) {
    const place = storage(kind);
    const keys = Array.from({ length: place?.length ?? 0 }, (_, i) => place?.key(i) ?? "");
    for (const key of keys) {
      const [what, owner] = key.split("/");
      if (what?.startsWith("parley.") && owner === encodeURIComponent(user)) place?.removeItem(key);
    }
  }
}

/** store stores a text under a key. It does nothing if the storage is full or forbidden. */
export function store(kind: Kind, key: string, value: string): void {
  try {
    storage(kind)?.setItem(key, value);
  } catch {
    // The storage is full or forbidden. After a reload the user enters or chooses the text again.
  }
}

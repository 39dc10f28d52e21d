/** Fragment is a fragment of the address, split into its token, or null, and the rest. */
export interface Fragment {
  readonly token: string | null;
  readonly route: string;
}

/** splitFragment splits a fragment such as `#token=...&channel=general`. */
export function splitFragment(hash: string): Fragment {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const token = fields.get("token")?.trim() || null;
  fields.delete("token");
  const route = fields.toString();
  return { token, route: route === "" ? "" : `#${route}` };
}

/**
 * subject returns the user of a token, for display only: it verifies nothing. It returns null if
 * the text is not a token or has no user.
 */
export function subject(token: string): string | null {
  try {
    const payload = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(payload), (c) => c.charCodeAt(0));
    const claims = JSON.parse(new TextDecoder().decode(bytes)) as { sub?: unknown };
    return typeof claims.sub === "string" && claims.sub !== "" ? claims.sub : null;
  } catch {
    return null;
  }
}

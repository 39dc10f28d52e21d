/** What the page's address says after its #. */
export interface Fragment {
  token: string | null;
  channel: string | null;
}

/** What a channel's id looks like. */
export const channelPattern = /^[A-Za-z0-9_-]{1,128}$/;

/** Reads a fragment such as `#token=...&channel=general`. What can't be a channel's id is left out. */
export function readFragment(hash: string): Fragment {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const channel = fields.get("channel") ?? "";
  return { token: fields.get("token")?.trim() || null, channel: channelPattern.test(channel) ? channel : null };
}

/** Writes the fragment that names a channel, and never a token; empty for none. */
export function channelFragment(channel: string | null): string {
  return channel === null ? "" : `#${new URLSearchParams({ channel })}`;
}

/**
 * The user that a token speaks for, for display only: nothing is verified here. Null where it is no token, or names
 * nobody.
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

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
  const sub = claimsOf(token)?.sub;
  return typeof sub === "string" && sub !== "" ? sub : null;
}

/**
 * mayShowPresence reports whether a token has the actions connect and watch of presence. It
 * verifies nothing: without it a page would ask for presence and be refused.
 */
export function mayShowPresence(token: string): boolean {
  const presence = claimsOf(token)?.cap?.presence;
  return presence === true || (Array.isArray(presence) && presence.includes("connect") && presence.includes("watch"));
}

/** ChannelAction is an action that a token can allow on a channel. */
export type ChannelAction = "send" | "history" | "subscribe";

/** SessionAction is an action that a token can allow on a session. */
export type SessionAction = "append" | "history" | "subscribe";

/**
 * channelRights returns a function that reports whether a token allows an action on a channel, by
 * the server's rule: a `*` at the end of a pattern matches any rest. It verifies nothing, not even
 * the membership that the server requires for a capability of `member:`. A page uses it to offer
 * only what the server may accept.
 */
export function channelRights(token: string): (action: ChannelAction, channelId: string) => boolean {
  return rights(token, /^(?:channel|member):(.*)$/);
}

/** sessionRights does what channelRights does, for an action on a session of the token's user. */
export function sessionRights(token: string): (action: SessionAction, sessionId: string) => boolean {
  return rights(token, /^session:(.*)$/);
}

function rights(token: string, name: RegExp): (action: string, id: string) => boolean {
  const granted = Object.entries(claimsOf(token)?.cap ?? {}).flatMap(([capability, actions]) => {
    const pattern = name.exec(capability)?.[1];
    return pattern !== undefined && Array.isArray(actions) ? [{ pattern, actions }] : [];
  });
  const covers = (pattern: string, id: string) =>
    pattern.endsWith("*") ? id.startsWith(pattern.slice(0, -1)) : id === pattern;
  return (action, id) => granted.some(({ pattern, actions }) => covers(pattern, id) && actions.includes(action));
}

function claimsOf(token: string): { sub?: unknown; cap?: Record<string, unknown> } | null {
  try {
    const payload = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(payload), (c) => c.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes)) as { sub?: unknown; cap?: Record<string, unknown> } | null;
  } catch {
    return null;
  }
}

import { channelPattern } from "./model/directory";

/**
 * parseRoute returns the channel of a fragment such as `#channel=general`, or null if it has none.
 */
export function parseRoute(fragment: string): string | null {
  const channel = new URLSearchParams(fragment.replace(/^#/, "")).get("channel") ?? "";
  return channelPattern.test(channel) ? channel : null;
}

/** routeFragment returns the fragment of a channel. It is empty for null, the list of channels. */
export function routeFragment(channel: string | null): string {
  return channel === null ? "" : `#${new URLSearchParams({ channel })}`;
}

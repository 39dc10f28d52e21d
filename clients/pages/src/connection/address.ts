/** Surroundings is what ownAddress needs of the browser. */
export interface Surroundings {
  location: Pick<Location, "protocol" | "hostname" | "port" | "origin">;
  fetch: (url: string, init: RequestInit) => Promise<{ ok: boolean }>;
  random: () => string;
}

const probeLimit = 2_000;

/**
 * ownAddress returns the address to call for a page that keeps a stream open. A browser opens at most six HTTP/1.1
 * connections to one host, and a stream uses one of them as long as its tab is open. Over plain http on loopback each
 * page therefore uses a host name of its own, `t-<random>.localhost`, which Chromium and Firefox resolve to loopback
 * themselves. If that name does not answer within 2 s, and over TLS, where HTTP/2 carries many streams on one
 * connection, it is the page's own origin.
 */
export async function ownAddress(browser: Surroundings): Promise<string> {
  const { protocol, hostname, port, origin } = browser.location;
  if (protocol !== "http:" || !loopback(hostname)) return origin;
  const own = `http://t-${browser.random()}.localhost${port ? `:${port}` : ""}`;
  try {
    const answer = await browser.fetch(`${own}/icon.svg`, {
      mode: "cors",
      cache: "no-store",
      signal: AbortSignal.timeout(probeLimit),
    });
    return answer.ok ? own : origin;
  } catch {
    return origin; // the name is unknown, or the server does not let another origin read its answers
  }
}

function loopback(hostname: string): boolean {
  return hostname === "localhost" || hostname.endsWith(".localhost") || hostname === "127.0.0.1";
}

/** Environment is the part of the browser that ownAddress uses. */
export interface Environment {
  location: Pick<Location, "protocol" | "hostname" | "port" | "origin">;
  fetch: (url: string, init: RequestInit) => Promise<{ ok: boolean }>;
  random: () => string;
}

const probeLimit = 2_000;

/**
 * ownAddress returns the address to call for a page that keeps a stream open. A browser opens at
 * most six HTTP/1.1 connections to one host, and a stream holds one while its tab is open. Over
 * plain http on loopback each page therefore uses its own host name, `t-<random>.localhost`, which
 * Chromium and Firefox resolve to loopback themselves. If that name does not answer within 2 s,
 * ownAddress returns the page's origin. It also returns the origin over TLS, where HTTP/2 carries
 * many streams on one connection, and on other hosts.
 */
export async function ownAddress(browser: Environment): Promise<string> {
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
    return origin; // the name does not resolve, or the server does not allow another origin to read its answers
  }
}

function loopback(hostname: string): boolean {
  return hostname === "localhost" || hostname.endsWith(".localhost") || hostname === "127.0.0.1";
}

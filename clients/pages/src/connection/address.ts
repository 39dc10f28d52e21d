/** What endpoint needs of the browser. */
export interface Browser {
  location: Pick<Location, "protocol" | "hostname" | "port" | "origin">;
  fetch: (url: string, init: RequestInit) => Promise<{ ok: boolean }>;
  random: () => string;
}

const probeLimit = 2_000;

/**
 * Finds the address to talk to. A browser opens six HTTP/1.1 connections to one host at most, and a tab's stream takes
 * one for as long as the tab is open. So over plain http on loopback each page uses a host name of its own,
 * `t-<random>.localhost`, which Chromium and Firefox take for loopback without asking anybody. Where that does not answer
 * within 2 s, and over TLS, where HTTP/2 carries many streams on one connection, it is the page's own origin.
 */
export async function endpoint(browser: Browser): Promise<string> {
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
    return origin; // the name is unknown, or the server lets no other origin read its answers
  }
}

function loopback(hostname: string): boolean {
  return hostname === "localhost" || hostname.endsWith(".localhost") || hostname === "127.0.0.1";
}

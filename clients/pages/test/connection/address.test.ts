import { describe, expect, test } from "vitest";
import { ownAddress } from "../../src/connection/address";

function at(url: string, fetch: (url: string, init: RequestInit) => Promise<{ ok: boolean }>) {
  return ownAddress({ location: new URL(url), fetch, random: () => "abc" });
}

describe("the address of a page with a stream", () => {
  test.each([
    ["http://127.0.0.1:8080/", "http://t-abc.localhost:8080"],
    ["http://localhost/", "http://t-abc.localhost"],
    ["http://x.localhost:81/", "http://t-abc.localhost:81"],
  ])("a tab on loopback has a host name of its own: %s", async (page, want) => {
    const asked: string[] = [];
    const got = await at(page, async (url) => {
      asked.push(url);
      return { ok: true };
    });
    expect(got).toBe(want);
    expect(asked).toEqual([`${want}/icon.svg`]);
  });

  test.each(["https://127.0.0.1:8080/", "http://10.0.0.7:8080/", "https://chat.example/", "http://localhost.example/"])(
    "elsewhere it is the page's origin, and nothing is asked: %s",
    async (page) => {
      const asked: string[] = [];
      const fetch = async (url: string) => ({ ok: asked.push(url) > 0 });
      expect(await at(page, fetch)).toBe(new URL(page).origin);
      expect(asked).toEqual([]);
    },
  );

  test("it is the page's origin if the name does not answer or refuses", async () => {
    const page = "http://127.0.0.1:8080/";
    expect(await at(page, () => Promise.reject(new TypeError("Failed to fetch")))).toBe("http://127.0.0.1:8080");
    expect(await at(page, async () => ({ ok: false }))).toBe("http://127.0.0.1:8080");
    let limit: AbortSignal | null | undefined;
    await at(page, async (_, init) => {
      limit = init.signal;
      return { ok: true };
    });
    expect(limit?.aborted).toBe(false);
  });
});

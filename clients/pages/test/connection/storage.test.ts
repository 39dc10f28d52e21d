import { afterEach, expect, test, vi } from "vitest";
import { forget } from "../../src/connection/storage";

/** FakeStorage is a storage of the browser. */
class FakeStorage {
  readonly items: Map<string, string>;

  constructor(...keys: string[]) {
    this.items = new Map(keys.map((key) => [key, "text"]));
  }

  get length(): number {
    return this.items.size;
  }

  key = (i: number) => [...this.items.keys()][i] ?? null;
  removeItem = (key: string) => void this.items.delete(key);
}

afterEach(() => {
  vi.unstubAllGlobals();
});

test("forget removes what is stored for one user, and nothing else", () => {
  const origin = new FakeStorage(
    "parley.theme",
    "parley.outbox/a%2Fb/1",
    "parley.outbox/a/1",
    "parley.outbox/a/2",
    "x/a/1",
  );
  const tab = new FakeStorage("parley.token", "parley.draft/a/room", "parley.draft/b/a/room", "parley.prompt-draft/a/");
  vi.stubGlobal("localStorage", origin);
  vi.stubGlobal("sessionStorage", tab);
  forget("a");
  expect([...origin.items.keys()]).toEqual(["parley.theme", "parley.outbox/a%2Fb/1", "x/a/1"]);
  expect([...tab.items.keys()]).toEqual(["parley.token", "parley.draft/b/a/room"]);
  forget("a/b");
  expect([...origin.items.keys()]).toEqual(["parley.theme", "x/a/1"]);
});

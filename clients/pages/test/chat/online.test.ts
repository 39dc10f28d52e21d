import { ParleyError } from "@parleyhq/sdk";
import { describe, expect, test, vi } from "vitest";
import { mostWatched, Online } from "../../src/chat/model/online";
import type { ChannelPresence, ChatPresence, PresenceEvent } from "../../src/chat/model/types";

/** FakePresence records what is watched and delivers events. */
class FakePresence implements ChatPresence {
  readonly watched = new Set<string>();
  readonly refused = new Set<string>();
  limit = 1_000;
  closed = false;
  #events: PresenceEvent[] = [];
  #take: ((event: PresenceEvent) => void) | null = null;
  #fail: (error: unknown) => void = () => {};

  say(event: PresenceEvent): void {
    if (this.#take) this.#take(event);
    else this.#events.push(event);
    this.#take = null;
  }

  end(error: unknown): void {
    this.#fail(error);
  }

  next(): Promise<PresenceEvent> {
    const event = this.#events.shift();
    if (event) return Promise.resolve(event);
    return new Promise((resolve, reject) => {
      this.#take = resolve;
      this.#fail = reject;
    });
  }

  async watchChannels(ids: readonly string[]): Promise<void> {
    if (this.watched.size >= this.limit) {
      throw new ParleyError({ reason: "LIMIT_EXCEEDED", limit: this.limit });
    }
    if (ids.some((id) => this.refused.has(id))) throw new Error("refused");
    for (const id of ids) this.watched.add(id);
  }

  async unwatchChannels(ids: readonly string[]): Promise<void> {
    for (const id of ids) this.watched.delete(id);
  }

  close(): void {
    this.closed = true;
    this.end(new Error("closed"));
  }
}

function follow(presence: FakePresence | null) {
  const stop = new AbortController();
  const online = new Online({ presence: () => presence }, stop.signal);
  return { online, stop, done: online.run() };
}

const room = (channelId: string, onlineCount = 1): ChannelPresence => ({
  channelId,
  onlineCount,
  memberCount: 3,
  online: new Map(),
});

describe("who is online", () => {
  test("is known of the watched channels, in their order, up to the limit", async () => {
    const presence = new FakePresence();
    const { online, stop, done } = follow(presence);
    const ids = Array.from({ length: mostWatched + 5 }, (_, n) => `room-${n}`);
    online.watch(ids);
    await vi.waitFor(() => expect([...presence.watched]).toEqual(ids.slice(0, mostWatched)));
    presence.say({ kind: "channel", channel: room("room-0", 2) });
    await vi.waitFor(() => expect(online.channels.value.get("room-0")?.onlineCount).toBe(2));
    online.watch(["room-30", "room-1"]);
    await vi.waitFor(() => expect([...presence.watched].sort()).toEqual(["room-1", "room-30"]));
    expect(online.channels.value.size).toBe(0);
    stop.abort();
    await done;
    expect(presence.closed).toBe(true);
  });

  test("is known of as many channels as the server allows", async () => {
    const presence = new FakePresence();
    presence.limit = 3;
    const { online } = follow(presence);
    const ids = Array.from({ length: mostWatched }, (_, n) => `room-${n}`);
    online.watch(ids);
    await vi.waitFor(() => expect([...presence.watched]).toEqual(ids.slice(0, 3)));
    // A channel beyond the limit is watched when it moves up.
    online.watch([...ids].reverse());
    await vi.waitFor(() => expect([...presence.watched]).toEqual(ids.slice(-3).reverse()));
  });

  test("is not known of a channel that was lost or refused, until it is regained", async () => {
    const presence = new FakePresence();
    presence.refused.add("open");
    const { online } = follow(presence);
    online.watch(["room", "open"]);
    presence.say({ kind: "channel", channel: room("room") });
    await vi.waitFor(() => expect(online.channels.value.has("room")).toBe(true));
    presence.say({ kind: "channel_lost", channelId: "room" });
    await vi.waitFor(() => expect(online.channels.value.has("room")).toBe(false));
    presence.watched.clear();
    presence.refused.clear();
    online.watch(["room", "open"]);
    online.regained("open");
    online.watch(["room", "open"]);
    await vi.waitFor(() => expect([...presence.watched]).toEqual(["open"]));
  });

  test("is not known without presence, and no longer when it has ended", async () => {
    const { online, done } = follow(null);
    await done;
    online.watch(["room"]);
    expect(online.channels.value.size).toBe(0);
    const presence = new FakePresence();
    const other = follow(presence);
    other.online.watch(["room"]);
    presence.say({ kind: "channel", channel: room("room") });
    await vi.waitFor(() => expect(other.online.channels.value.size).toBe(1));
    presence.end(new Error("the login is over"));
    await other.done;
    expect(other.online.channels.value.size).toBe(0);
  });
});

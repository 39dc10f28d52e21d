import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/presence_pb.js";
import type { SubscribeRequest } from "@parleyhq/api/parley/v1/subscription_pb.js";
import { describe, expect, it } from "vitest";
import { Code, live, ParleyError, type Presence } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { eventually, newClient, rejected, States, subscribe } from "./helper.js";
import { connect, connects, isLive, want } from "./presencehelper.js";

const full = failure(Code.ResourceExhausted, ErrorReason.NODE_FULL);

const watches = (server: Fake) => server.of<pb.WatchChannelRequest>("WatchChannel").map((r) => r.channelId);

/** listed returns the channels that a request to open a stream watches. */
const listed = (message: unknown) =>
  (message as pb.ConnectRequest).watchChannels ?? (message as SubscribeRequest).presence?.watchChannels ?? [];

/** lost takes the next event, which reports a lost channel. */
async function lost(presence: Presence): Promise<[string, string | undefined]> {
  const event = await presence.next();
  expect(event.kind).toBe("channel_lost");
  return event.kind === "channel_lost" ? [event.channelId, event.error?.reason] : ["", undefined];
}

describe("the server's limits of watched channels", () => {
  for (const field of ["watch_channels", "presence.watch_channels"]) {
    it(`lose the channels beyond them, not the presence: ${field}`, async () => {
      const server = new Fake();
      server.board.members.set("a", ["ann"]).set("b", ["ann"]).set("c", ["ann"]);
      const exceeded = failure(Code.ResourceExhausted, ErrorReason.LIMIT_EXCEEDED, { field, limit: 2n });
      server.fault = (method, message) => {
        const watched = [...server.streams][0]?.presence?.channels.size ?? 0;
        const refused = method === "WatchChannel" ? watched >= 2 : listed(message).length > 2;
        return refused ? { error: exceeded } : undefined;
      };
      const client = newClient(server);
      const states = new States();
      if (field !== "watch_channels") {
        subscribe(client, live("room"), states);
      }
      const presence = connect(client, { watchChannels: ["a", "b", "c"] }, states);
      await want(presence, "a 0/1", "b 0/1");
      expect(await lost(presence)).toEqual(["c", "LIMIT_EXCEEDED"]);
      expect(watches(server)).toEqual(["a", "b", "c"]);
      expect(states.waits).toEqual([]);
      server.endStreams();
      await eventually(() => states.waits.length > 0 && presence.state === "live");
      expect(watches(server).length).toBe(3);
    });
  }

  it("lose an open channel that was added between two streams", async () => {
    const server = new Fake();
    server.board.members.set("a", ["ann"]);
    const open = failure(Code.FailedPrecondition, ErrorReason.CHANNEL_OPEN, { field: "watch_channels" });
    const states = new States();
    const presence = connect(newClient(server), { watchChannels: ["a"] }, states);
    await want(presence, "a 0/1");
    server.down = true;
    server.endStreams();
    await eventually(() => states.waits.length > 0);
    await presence.watchChannels("hall");
    server.fault = (method, message) => {
      const { channelId } = message as pb.WatchChannelRequest;
      return listed(message).includes("hall") || (method === "WatchChannel" && channelId === "hall")
        ? { error: open }
        : undefined;
    };
    server.down = false;
    expect(await lost(presence)).toEqual(["hall", "CHANNEL_OPEN"]);
    await isLive(presence);
    expect(presence.channel("a")).toBeDefined();
  });
});

describe("a full node", () => {
  it("is asked a few times for a channel, and then refuses the call", async () => {
    const server = new Fake();
    const presence = connect(newClient(server));
    await isLive(presence);
    server.fault = (method) => (method === "WatchChannel" ? { error: full } : undefined);
    expect(await rejected(presence.watchChannels("a"), ParleyError)).toMatchObject({ reason: "NODE_FULL" });
    expect(watches(server).length).toBe(5);
    expect(connects(server).length).toBe(1);
    expect(presence.state).toBe("live");
  });

  it("is left for another one", async () => {
    const servers = [new Fake(), new Fake()];
    const presence = connect(newClient(servers));
    await isLive(presence);
    const [first, other] = connects(servers[0] as Fake).length === 1 ? servers : [...servers].reverse();
    (other as Fake).board.members.set("a", ["ann"]);
    (first as Fake).fault = (method) => (method === "WatchChannel" ? { error: full } : undefined);
    await presence.watchChannels("a");
    await want(presence, "a 0/1");
    expect(connects(other as Fake).map((r) => r.watchChannels)).toEqual([["a"]]);
    expect([watches(first as Fake).length, watches(other as Fake).length]).toEqual([5, 0]);
  });

  it("that refuses a stream with channels gets one without", async () => {
    const server = new Fake();
    server.fault = (method, message) =>
      method === "WatchChannel" || listed(message).length > 0 ? { error: full } : undefined;
    const presence = connect(newClient(server), { watchChannels: ["a"], watch: ["ann"] });
    await want(presence, "ann");
    expect(await lost(presence)).toEqual(["a", "NODE_FULL"]);
    expect(connects(server).length).toBe(2);
  });
});

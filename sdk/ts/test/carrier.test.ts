import { ErrorReason, KickCause } from "@parleyhq/api/parley/v1/error_pb.js";
import { Platform } from "@parleyhq/api/parley/v1/platform_pb.js";
import type * as sub from "@parleyhq/api/parley/v1/subscription_pb.js";
import { describe, expect, it } from "vitest";
import { ClosedError, Code, fromStart, live, ParleyError, type Presence } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { eventually, newClient, nextEvent, rejected, States, subscribe, wantEntries } from "./helper.js";
import { connect, connects, isLive, want, wantQuiet } from "./presencehelper.js";

const { IOS, WEB } = Platform;

const subscribes = (server: Fake) => server.of<sub.SubscribeRequest>("Subscribe");

/** logins returns the login token of each request that has presence, with its method. */
const logins = (server: Fake) => [
  ...connects(server).map((r) => `Connect ${r.loginToken}`),
  ...subscribes(server)
    .filter((r) => r.presence)
    .map((r) => `Subscribe ${r.presence?.loginToken}`),
];

describe("a presence and a subscription", () => {
  for (const first of ["subscription", "presence"]) {
    it(`share one stream: ${first} first`, async () => {
      const server = new Fake();
      server.board.set("ann", WEB);
      const client = newClient(server);
      const states = new States();
      const early = first === "presence" ? connect(client, { watch: ["ann"] }, states) : undefined;
      const room = subscribe(client, fromStart("room"));
      const presence = early ?? connect(client, { watch: ["ann"] }, states);
      await want(presence, "ann WEB");
      server.post("room", 2);
      await wantEntries(room, "room", 1, 2);
      await presence.watch("bob");
      await want(presence, "bob");
      server.board.set("bob", IOS);
      await want(presence, "bob IOS");
      expect(logins(server)).toEqual(["Subscribe "]);
      expect(subscribes(server).length).toBe(1);
      expect(states.names).toEqual(["connecting", "live"]);
      expect(presence.loginToken).toBe("login-1");
    });
  }

  it("share the stream of a live subscription, which is opened again", async () => {
    const server = new Fake();
    const client = newClient(server);
    const states = new States();
    server.post("room", 2);
    const room = subscribe(client, fromStart("room"), states);
    await wantEntries(room, "room", 1, 2);
    const presence = connect(client, { watch: ["ann"] });
    await want(presence, "ann");
    server.post("room");
    await wantEntries(room, "room", 3, 3);
    expect(logins(server)).toEqual(["Subscribe "]);
    expect(states.names).toEqual(["connecting", "live", "connecting", "live"]);
    await eventually(() => server.streams.size === 1);
  });

  it("share the stream of a subscription that is created later, with the same login", async () => {
    const server = new Fake();
    const client = newClient(server);
    const states = new States();
    const presence = connect(client, { watch: ["ann"] }, states);
    await want(presence, "ann");
    server.board.set("ann", WEB);
    await want(presence, "ann WEB");
    const room = subscribe(client, live("room"));
    await nextEvent(room, "channel_state");
    await eventually(() => server.streams.size === 1 && presence.state === "live");
    expect(logins(server)).toEqual(["Connect ", "Subscribe login-1"]);
    expect(states.names).toEqual(["connecting", "live", "connecting", "live"]);
    server.board.set("ann");
    await want(presence, "ann");
    await wantQuiet(presence);
  });

  it("log in once if the subscription is created before the answer to the first request", async () => {
    const server = new Fake();
    const client = newClient(server);
    let respond = () => {};
    const asked = new Promise<void>((resolve) => {
      respond = resolve;
    });
    server.hold = async (method) => (method === "Connect" ? asked : undefined);
    const presence = connect(client, { watch: ["ann"] });
    await eventually(() => connects(server).length === 1);
    const room = subscribe(client, live("room"));
    await nextEvent(room, "channel_state");
    respond();
    await eventually(() => logins(server).length === 2 && presence.state === "live");
    expect(logins(server)).toEqual(["Connect ", "Subscribe login-1"]);
    await want(presence, "ann");
    await eventually(() => server.streams.size === 1);
  });

  it("reconnect together", async () => {
    const server = new Fake();
    const client = newClient(server);
    const states = new States();
    const room = subscribe(client, fromStart("room"));
    const presence = connect(client, { watch: ["ann", "bob"] }, states);
    await want(presence, "ann", "bob");
    server.down = true;
    server.endStreams();
    await eventually(() => states.waits.length > 0);
    expect(states.waits[0]?.error).toMatchObject({ retryable: true });
    server.post("room");
    server.board.set("bob", WEB);
    server.down = false;
    await wantEntries(room, "room", 1, 1);
    await want(presence, "bob WEB");
    await wantQuiet(presence);
    expect(logins(server)[0]).toBe("Subscribe ");
    expect(new Set(logins(server).slice(1))).toEqual(new Set(["Subscribe login-1"]));
    expect(states.names.slice(0, 4)).toEqual(["connecting", "live", "waiting", "connecting"]);
  });

  it("end with KICKED together", async () => {
    const server = new Fake();
    const client = newClient(server);
    const room = subscribe(client, live("room"));
    const presence = connect(client, { watch: ["ann"] });
    await want(presence, "ann");
    server.board.kick({ cause: KickCause.LOGIN, deviceId: "phone", platform: Platform.IOS });
    const kicked = { reason: "KICKED", kick: { deviceId: "phone", platform: "IOS" } };
    expect(await rejected(presence.next(), ParleyError)).toMatchObject(kicked);
    expect(await rejected(nextEvent(room), ParleyError)).toMatchObject(kicked);
    await Promise.all([presence.done, room.done]);
    expect(logins(server)).toEqual(["Subscribe "]);
  });

  it("separate if the server refuses the presence", async () => {
    const server = new Fake();
    const client = newClient(server);
    const refusal = failure(Code.PermissionDenied, ErrorReason.CAPABILITY_MISSING);
    server.fault = (method, message) =>
      method === "Connect" || (message as sub.SubscribeRequest).presence !== undefined ? { error: refusal } : undefined;
    const room = subscribe(client, fromStart("room"));
    const presence = connect(client, { watch: ["ann"] });
    expect(await rejected(presence.next(), ParleyError)).toMatchObject({ reason: "CAPABILITY_MISSING" });
    server.post("room");
    await wantEntries(room, "room", 1, 1);
    expect([connects(server).length, subscribes(server).length]).toEqual([1, 2]);
  });

  it("separate if the server refuses the channels", async () => {
    const server = new Fake();
    server.log("room").members = new Set(["other"]);
    const client = newClient(server);
    const room = subscribe(client, live("room"));
    const presence = connect(client, { watch: ["ann"] });
    expect(await rejected(nextEvent(room), ParleyError)).toMatchObject({ reason: "NOT_MEMBER" });
    await want(presence, "ann");
    expect(connects(server).length).toBe(1);
    // A refusal without a channel that is followed may be about the presence.
    const other = subscribe(client, live("hall"));
    await nextEvent(other, "channel_state");
    await eventually(() => subscribes(server).length === 3 && presence.state === "live");
    expect(subscribes(server)[2]?.presence?.loginToken).toBe("login-1");
  });

  it("stay together if the presence loses a channel", async () => {
    const server = new Fake();
    server.board.members.set("team", ["ann"]);
    const client = newClient(server);
    const states = new States();
    const room = subscribe(client, live("room"), states);
    const presence = connect(client, { watchChannels: ["team"] });
    await want(presence, "team 0/1");
    const refusal = failure(Code.PermissionDenied, ErrorReason.NOT_MEMBER, { positions: [{ channelId: "team" }] });
    server.fault = (_, message) =>
      (message as sub.SubscribeRequest).presence?.watchChannels.length === 1 ? { error: refusal } : undefined;
    server.endStreams();
    await want(presence, "team lost");
    await eventually(() => states.names.filter((s) => s === "live").length === 2);
    await isLive(presence);
    expect(logins(server)).toEqual(["Subscribe ", "Subscribe login-1", "Subscribe login-1"]);
    expect(room.state).toBe("live");
  });

  it("separate if the server's streams do not have presence", async () => {
    const server = new Fake();
    server.legacy = true;
    const client = newClient(server);
    const room = subscribe(client, live("room"));
    const presence = connect(client, { watch: ["ann"] });
    await want(presence, "ann");
    await nextEvent(room, "channel_state");
    expect([connects(server).length, subscribes(server).length]).toEqual([1, 1]);
  });

  it("continue alone when the other is closed", async () => {
    const server = new Fake();
    const client = newClient(server);
    const room = subscribe(client, fromStart("room"));
    const states = new States();
    const presence = connect(client, { watch: ["ann"] }, states);
    await want(presence, "ann");
    room.close();
    await room.done;
    await eventually(() => connects(server).length === 1 && presence.state === "live");
    expect(logins(server)).toEqual(["Connect login-1", "Subscribe "]);
    expect(server.of("Disconnect")).toEqual([]);
    server.board.set("ann", WEB);
    await want(presence, "ann WEB");

    const other = subscribe(client, fromStart("room"));
    await eventually(() => subscribes(server).length === 2 && presence.state === "live");
    const [stream] = [...server.streams].filter((s) => s.presence?.connect === false);
    presence.close();
    await presence.done;
    expect(server.of("Disconnect")).toMatchObject([{ streamId: stream?.id }]);
    server.post("room");
    await wantEntries(other, "room", 1, 1);
    expect(subscribes(server).length).toBe(2);
    server.endStreams();
    server.post("room");
    await wantEntries(other, "room", 2, 2);
    expect(subscribes(server).at(-1)?.presence).toBeUndefined();
  });

  it("take another subscription when that of the presence ends", async () => {
    const server = new Fake();
    const client = newClient(server);
    const [one, other] = [subscribe(client, live("room")), subscribe(client, live("hall"))];
    const presence = connect(client, { watch: ["ann"] });
    await want(presence, "ann");
    await nextEvent(other, "channel_state");
    one.close();
    await eventually(() => logins(server).length === 2 && presence.state === "live");
    expect(logins(server)).toEqual(["Subscribe ", "Subscribe login-1"]);
    expect(subscribes(server).at(-1)?.channels).toMatchObject([{ channelId: "hall" }]);
    await eventually(() => server.streams.size === 1);
  });

  it("have a stream each if there are more presences than subscriptions", async () => {
    const server = new Fake();
    const client = newClient(server);
    subscribe(client, live("room"));
    const one = connect(client, { watch: ["ann"] });
    const other = connect(client, { watch: ["ann"], invisible: true });
    await want(one, "ann");
    await want(other, "ann");
    expect(logins(server)).toEqual(["Connect ", "Subscribe "]);
  });

  it("change places if the presence on the subscription's stream ends", async () => {
    const server = new Fake();
    const client = newClient(server);
    const presences: Presence[] = [];
    for (let i = 1; i <= 3; i++) {
      presences.push(connect(client));
      await eventually(() => presences.at(-1)?.loginToken === `login-${i}`);
    }
    const room = subscribe(client, live("room"));
    for (let left = 3; left > 0; left--) {
      const carried = () => server.board.live.find((p) => !p.connect);
      await eventually(() => server.streams.size === left && carried() !== undefined);
      const presence = presences.find((p) => p.loginToken === carried()?.loginToken);
      await eventually(() => presence?.state === "live" && server.board.live.length === left);
      presence?.close();
      await presence?.done;
    }
    expect(room.state).toBe("live");
    expect(connects(server).length).toBe(3);
  });

  it("leave the stream if Disconnect fails", async () => {
    const server = new Fake();
    const client = newClient(server);
    const room = subscribe(client, fromStart("room"));
    const presence = connect(client, { watch: ["ann"] });
    await want(presence, "ann");
    server.faults(1, "Disconnect", { error: failure(Code.Unavailable, ErrorReason.STORE_UNAVAILABLE) });
    presence.close();
    await presence.done;
    await eventually(() => subscribes(server).length === 2);
    expect(subscribes(server)[1]?.presence).toBeUndefined();
    server.post("room");
    await wantEntries(room, "room", 1, 1);
  });

  it("make the user offline before the stream ends when the client is closed", async () => {
    for (const presenceFirst of [true, false]) {
      const server = new Fake();
      const client = newClient(server);
      const early = presenceFirst ? connect(client) : undefined;
      const room = subscribe(client, live("room"));
      const presence = early ?? connect(client);
      await isLive(presence);
      const [stream] = server.streams;
      let streams = 0;
      server.fault = (method) => {
        streams = method === "Disconnect" ? server.streams.size : streams;
        return undefined;
      };
      client.close();
      await rejected(nextEvent(room), ClosedError);
      await Promise.all([presence.done, room.done]);
      expect([server.of("Disconnect"), streams]).toMatchObject([[{ streamId: stream?.id }], 1]);
      await eventually(() => server.streams.size === 0);
    }
  });

  for (const about of ["Connect", "Subscribe", "neither"]) {
    it(`separate if a final error ends their live stream, which ends only its own one: ${about}`, async () => {
      const server = new Fake();
      const client = newClient(server);
      const room = subscribe(client, live("room"));
      const presence = connect(client, { watch: ["ann"] });
      await want(presence, "ann");
      await nextEvent(room, "channel_state");
      const refusal = failure(Code.PermissionDenied, ErrorReason.CAPABILITY_MISSING);
      server.fault = (method) => (method === about ? { error: refusal } : undefined);
      server.endStreams(refusal);
      await eventually(() => connects(server).length === 1 && subscribes(server).length === 2);
      expect(logins(server)).toEqual(["Connect login-1", "Subscribe "]);
      for (const [method, one, next] of [
        ["Connect", presence, () => presence.next()],
        ["Subscribe", room, () => nextEvent(room, "sent")],
      ] as const) {
        if (method === about) {
          expect(await rejected(next(), ParleyError)).toMatchObject({ reason: "CAPABILITY_MISSING" });
        } else {
          await eventually(() => one.state === "live");
        }
      }
    });
  }
});

import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import { Platform } from "@parleyhq/api/parley/v1/platform_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/presence_pb.js";
import type { SubscribeRequest } from "@parleyhq/api/parley/v1/subscription_pb.js";
import { describe, expect, it } from "vitest";
import { ClosedError, Code, InterruptedError, ParleyError } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { eventually, newClient, rejected, States } from "./helper.js";
import { connect, connects, isLive, want, wantQuiet } from "./presencehelper.js";

const { WEB } = Platform;

const updates = (server: Fake) =>
  server.of<pb.UpdateWatchRequest>("UpdateWatch").map(({ add, remove }) => [add, remove]);

const sent = (server: Fake) => server.of<pb.SetBackgroundRequest>("SetBackground").map((r) => r.background);

describe("watching users", () => {
  it("adds and removes users on the live stream", async () => {
    const server = new Fake();
    const presence = connect(newClient(server), { watch: ["ann"] });
    await want(presence, "ann");
    server.board.set("bob", WEB);
    await presence.watch(["bob", "ann", "carl"]);
    await want(presence, "bob WEB", "carl");
    server.board.set("bob");
    await eventually(() => presence.user("bob")?.platforms.length === 0);
    await presence.unwatch(["bob", "nobody"]);
    expect(presence.user("bob")).toBeUndefined();
    server.board.set("bob", WEB);
    server.board.set("carl", WEB);
    await want(presence, "carl WEB");
    await wantQuiet(presence);
    expect(updates(server)).toEqual([
      [["bob", "carl"], []],
      [[], ["bob"]],
    ]);
    expect(connects(server).length).toBe(1);
    // A user who is watched again is new to the program.
    await presence.watch("bob");
    await want(presence, "bob WEB");
  });

  it("sends changes between two streams with the next request", async () => {
    const server = new Fake();
    const states = new States();
    const presence = connect(newClient(server), { watch: ["ann", "bob"] }, states);
    await want(presence, "ann", "bob");
    server.down = true;
    server.endStreams();
    await eventually(() => states.waits.length > 0);
    await presence.watch("carl");
    await presence.unwatch("bob");
    presence.setBackground(true);
    server.down = false;
    await want(presence, "carl");
    expect(connects(server).at(-1)).toMatchObject({ watch: ["ann", "carl"], background: true });
    expect([updates(server), server.of("SetBackground")]).toEqual([[], []]);
  });

  it("sends changes before the first frame after it", async () => {
    const server = new Fake();
    const presence = connect(newClient(server), {
      watch: ["ann", "bob"],
      onState: ({ state }) => {
        if (state === "connecting") {
          // After the request, which is made in the next microtasks.
          setTimeout(() => {
            presence.watch("carl");
            presence.unwatch("bob");
            presence.setBackground(true);
          });
        }
      },
    });
    let respond = () => {};
    const asked = new Promise<void>((resolve) => {
      respond = resolve;
    });
    server.hold = async (method) => (method === "Connect" ? asked : undefined);
    await eventually(() => connects(server).length === 1);
    await new Promise((resolve) => setTimeout(resolve, 10));
    respond();
    await want(presence, "ann", "carl");
    await eventually(() => server.of("SetBackground").length === 1);
    expect(connects(server)).toMatchObject([{ watch: ["ann", "bob"], background: false }]);
    expect(updates(server)).toEqual([[["carl"], ["bob"]]]);
    expect(presence.user("bob")).toBeUndefined();
  });

  it("delivers a state that the response does not have", async () => {
    const server = new Fake();
    server.board.late.add("ann").add("bob");
    const presence = connect(newClient(server), { watch: ["ann"] });
    await isLive(presence);
    await presence.watch("bob");
    expect(presence.user("ann")).toBeUndefined();
    server.board.set("bob", WEB);
    server.board.set("ann");
    await want(presence, "bob WEB", "ann");
  });

  it("is sent in requests of 500 users", async () => {
    const server = new Fake();
    const presence = connect(newClient(server), { watch: ["ann"] });
    await want(presence, "ann");
    await presence.watch(Array.from({ length: 501 }, (_, n) => `user-${n}`));
    expect(updates(server).map(([add]) => add?.length)).toEqual([500, 1]);
  });

  it("repeats a change that failed, on the same stream", async () => {
    const server = new Fake();
    const presence = connect(newClient(server));
    await isLive(presence);
    for (const [n, fault] of [
      { error: failure(Code.Unavailable, ErrorReason.STORE_UNAVAILABLE) },
      { error: failure(Code.ResourceExhausted, ErrorReason.RATE_LIMITED) },
    ].entries()) {
      server.faults(2, "UpdateWatch", fault);
      await presence.watch(`user-${n}`);
      await want(presence, `user-${n}`);
    }
    expect(updates(server).length).toBe(6);
    expect(connects(server).length).toBe(1);
  });

  it("reconnects if it is not known whether a change was made", async () => {
    const server = new Fake();
    const presence = connect(newClient(server, { attemptTimeout: 300 }));
    await isLive(presence);
    for (const [n, fault] of [
      { drop: true, applied: true },
      { hang: true },
      { error: failure(Code.Internal, ErrorReason.INTERNAL) },
      { error: failure(Code.Unavailable, ErrorReason.OUTCOME_UNKNOWN) },
    ].entries()) {
      server.faults(1, "UpdateWatch", fault);
      await presence.watch(`user-${n}`);
      await want(presence, `user-${n}`);
      expect(connects(server).length).toBe(n + 2);
      await isLive(presence);
    }
    expect(updates(server).length).toBe(4);
    server.faults(1, "SetBackground", { drop: true });
    presence.setBackground(true);
    await eventually(() => connects(server).at(-1)?.background === true);
    expect(server.of("SetBackground").length).toBe(1);
  });

  it("rejects with a final error and watches none of the users", async () => {
    const server = new Fake();
    const presence = connect(newClient(server), { watch: ["ann"] });
    await want(presence, "ann");
    const many = Array.from({ length: 501 }, (_, n) => `user-${n}`);
    server.fault = (method, message) =>
      method === "UpdateWatch" && (message as pb.UpdateWatchRequest).add.length === 1
        ? { error: failure(Code.ResourceExhausted, ErrorReason.LIMIT_EXCEEDED, { limit: 500n }) }
        : undefined;
    const err = await rejected(presence.watch(many), ParleyError);
    expect(err).toMatchObject({ reason: "LIMIT_EXCEEDED", limit: 500 });
    // The part that the server had accepted is removed from it.
    await eventually(() => server.board.live[0]?.users.size === 1);
    expect(presence.user("user-0")).toBeUndefined();
    server.endStreams();
    await eventually(() => connects(server).length === 2);
    expect(connects(server)[1]?.watch).toEqual(["ann"]);
    await isLive(presence);
    await wantQuiet(presence);
  });

  it("does not request users that the server has not accepted", async () => {
    const server = new Fake();
    const presence = connect(newClient(server), { watch: ["ann"] });
    await want(presence, "ann");
    server.faults(1, "UpdateWatch", { hang: true });
    const watching = presence.watch("bob");
    await eventually(() => updates(server).length === 1);
    server.endStreams();
    await watching;
    await want(presence, "bob");
    expect(presence.user("bob")?.platforms).toEqual([]);
  });

  it("ends with the signal's reason, and the users are not watched", async () => {
    const server = new Fake();
    const presence = connect(newClient(server), { watch: ["ann"] });
    await want(presence, "ann");
    server.faults(1, "UpdateWatch", { hang: true });
    const controller = new AbortController();
    const watching = presence.watch("bob", controller.signal);
    await eventually(() => updates(server).length === 1);
    controller.abort(new Error("enough"));
    await expect(watching).rejects.toThrow("enough");
    await presence.watch("carl");
    await want(presence, "carl");
    expect(presence.user("bob")).toBeUndefined();
    await wantQuiet(presence);
  });

  it("reports the last failure if the signal ends a change that is repeated", async () => {
    const server = new Fake();
    const presence = connect(newClient(server));
    await isLive(presence);
    const away = failure(Code.Unavailable, ErrorReason.STORE_UNAVAILABLE);
    server.fault = (method) => (method === "UpdateWatch" ? { error: away } : undefined);
    const controller = new AbortController();
    const watching = rejected(presence.watch("bob", controller.signal), InterruptedError);
    await eventually(() => updates(server).length === 2);
    controller.abort(new Error("enough"));
    expect(await watching).toMatchObject({ reason: { message: "enough" }, cause: { reason: "STORE_UNAVAILABLE" } });
    const closing = rejected(presence.watch("carl"), ClosedError);
    await eventually(() => updates(server).length === 3);
    presence.close();
    await closing;
  });

  it("reconnects if the server does not know the stream", async () => {
    const server = new Fake();
    const presence = connect(newClient(server), { watch: ["ann"] });
    await want(presence, "ann");
    server.faults(1, "UpdateWatch", { error: failure(Code.NotFound, ErrorReason.STREAM_NOT_FOUND) });
    await presence.watch("bob");
    await want(presence, "bob");
    expect(connects(server)).toMatchObject([{ watch: ["ann"] }, { watch: ["ann", "bob"], loginToken: "login-1" }]);
  });

  it("sends changes in their order", async () => {
    const server = new Fake();
    const presence = connect(newClient(server));
    await isLive(presence);
    await Promise.all([presence.watch("ann"), presence.unwatch("ann"), presence.watch("bob")]);
    expect(updates(server)).toEqual([
      [["ann"], []],
      [[], ["ann"]],
      [["bob"], []],
    ]);
    await want(presence, "bob");
    await wantQuiet(presence);
  });
});

describe("users that the server refuses later", () => {
  const strangers = Array.from({ length: 120 }, (_, n) => `user-${n}`);
  const refuse = (server: Fake) => {
    server.fault = (_, message) => {
      const request = message as { watch?: string[]; add?: string[] };
      const userIds = [...(request.watch ?? []), ...(request.add ?? [])].filter((id) => strangers.includes(id));
      const detail = { userIds: userIds.slice(0, 50) };
      return userIds.length === 0
        ? undefined
        : { error: failure(Code.PermissionDenied, ErrorReason.NO_SHARED_CHANNEL, detail) };
    };
  };

  it("are lost when the presence reconnects", async () => {
    const server = new Fake();
    refuse(server);
    const early = connect(newClient(server), { watch: ["user-0"] });
    const error = await rejected(early.next(), ParleyError);
    expect(error).toMatchObject({ reason: "NO_SHARED_CHANNEL", userIds: ["user-0"] });
    server.fault = () => undefined;
    const states = new States();
    const presence = connect(newClient(server), { watch: ["ann", ...strangers] }, states);
    await want(presence, "ann", ...strangers);
    refuse(server);
    server.endStreams();
    await want(presence, ...strangers.map((id) => `${id} lost`));
    await isLive(presence);
    expect(connects(server).map((r) => r.watch.length)).toEqual([1, 121, 121, 71, 21, 1]);
    expect(states.waits.length).toBe(1);
    expect(await rejected(presence.watch("user-0"), ParleyError)).toMatchObject({ userIds: ["user-0"] });
    server.fault = () => undefined;
    await presence.watch("user-0");
    await want(presence, "user-0");
  });

  it("are lost on the stream of a subscription", async () => {
    const server = new Fake();
    const client = newClient(server);
    const subscription = client.subscribe([]);
    const presence = connect(client, { watch: ["ann", "user-0"] });
    await want(presence, "ann", "user-0");
    const presences = () => server.of<SubscribeRequest>("Subscribe").filter((r) => r.presence !== undefined);
    const before = presences().length;
    server.fault = (method, message) =>
      method === "Subscribe" && (message as SubscribeRequest).presence?.watch.includes("user-0")
        ? { error: failure(Code.PermissionDenied, ErrorReason.NO_SHARED_CHANNEL, { userIds: ["user-0"] }) }
        : undefined;
    server.endStreams();
    await want(presence, "user-0 lost");
    await isLive(presence);
    expect(presences().slice(before)).toMatchObject([
      { presence: { watch: ["ann", "user-0"] } },
      { presence: { watch: ["ann"] } },
    ]);
    expect(connects(server)).toEqual([]);
    subscription.close();
  });

  it("are lost if they were added while a stream was opening", async () => {
    const server = new Fake();
    refuse(server);
    let open = () => {};
    const opened = new Promise<void>((resolve) => {
      open = resolve;
    });
    server.hold = async (method) => {
      if (method === "Connect") {
        await opened;
      }
    };
    const presence = connect(newClient(server), { watch: ["ann"] });
    await eventually(() => connects(server).length === 1);
    await presence.watch("user-0");
    open();
    await want(presence, "ann", "user-0 lost");
    expect(presence.state).toBe("live");
    expect(connects(server).length).toBe(1);
  });
});

describe("watching channels", () => {
  it("delivers the members who are online", async () => {
    const server = new Fake();
    const board = server.board;
    board.members.set("room", ["ann", "bob", "carl"]).set("hall", ["ann"]);
    board.set("bob", WEB);
    const presence = connect(newClient(server), { watchChannels: ["room"] });
    await want(presence, "room 1/3 bob");
    board.set("ann", WEB);
    await want(presence, "room 2/3 bob ann");
    const before = presence.channel("room");
    board.set("bob");
    await want(presence, "room 1/3 ann");
    expect([...(before?.online?.keys() ?? [])]).toEqual(["bob", "ann"]);
    await presence.watchChannels(["hall", "room"]);
    await want(presence, "hall 1/1 ann");
    expect(server.of("WatchChannel")).toMatchObject([{ channelId: "hall" }]);
    await presence.unwatchChannels("room");
    expect(presence.channel("room")).toBeUndefined();
    board.set("bob", WEB);
    board.set("ann");
    await want(presence, "hall 0/1");
    await wantQuiet(presence);
    expect(server.of("UnwatchChannel")).toMatchObject([{ channelId: "room" }]);
    server.endStreams();
    await eventually(() => connects(server).length === 2);
    expect(connects(server)[1]?.watchChannels).toEqual(["hall"]);
  });

  it("has only the numbers of a large channel", async () => {
    const server = new Fake();
    const members = Array.from({ length: 1_001 }, (_, n) => `user-${n}`);
    server.board.members.set("room", members);
    const presence = connect(newClient(server), { watchChannels: ["room"] });
    await want(presence, "room 0/1001 no list");
    server.board.set("user-7", WEB);
    await want(presence, "room 1/1001 no list");
    server.board.members.set("room", members.slice(1));
    for (const stream of server.streams) {
      server.board.say(stream, { channels: [server.board.channel("room")] });
    }
    await want(presence, "room 1/1000 user-7");
    server.board.set("user-8", WEB);
    await want(presence, "room 2/1000 user-7 user-8");
  });

  it("applies changes that overtake the response", async () => {
    const server = new Fake();
    server.board.members.set("room", ["ann", "bob"]);
    server.board.set("ann", WEB);
    const presence = connect(newClient(server), { watch: ["bob"] });
    await want(presence, "bob");
    // The change arrives as a frame before the answer, which is older.
    server.board.overtake = () => server.board.set("bob", WEB);
    server.hold = async (method) => {
      if (method === "WatchChannel") {
        await eventually(() => presence.user("bob")?.platforms.length === 1);
      }
    };
    await presence.watchChannels("room");
    await want(presence, "bob WEB", "room 2/2 ann bob");
  });

  it("drops what an earlier stream's changes would be applied to", async () => {
    const server = new Fake();
    server.board.members.set("room", ["ann", "bob"]);
    server.board.set("ann", WEB);
    const presence = connect(newClient(server), { watchChannels: ["room"] });
    await want(presence, "room 1/2 ann");
    server.board.late.add("room");
    server.endStreams();
    await eventually(() => connects(server).length === 2 && presence.state === "live");
    server.board.set("ann");
    server.board.set("bob", WEB);
    await wantQuiet(presence);
    expect(presence.channel("room")?.onlineCount).toBe(1);
    for (const stream of server.streams) {
      server.board.say(stream, { channels: [server.board.channel("room")] });
    }
    await want(presence, "room 1/2 bob");
  });

  it("rejects with a final error", async () => {
    const server = new Fake();
    const presence = connect(newClient(server));
    await isLive(presence);
    server.faults(1, "WatchChannel", { error: failure(Code.FailedPrecondition, ErrorReason.CHANNEL_OPEN) });
    expect(await rejected(presence.watchChannels("room"), ParleyError)).toMatchObject({ reason: "CHANNEL_OPEN" });
    expect(presence.state).toBe("live");
    server.endStreams();
    await eventually(() => connects(server).length === 2);
    expect(connects(server)[1]?.watchChannels).toEqual([]);
  });

  it("loses a channel that the server no longer follows", async () => {
    const server = new Fake();
    const { board } = server;
    board.members.set("room", ["ann"]).set("hall", ["ann"]);
    const presence = connect(newClient(server), { watchChannels: ["room", "hall"] });
    await want(presence, "room 0/1", "hall 0/1");
    const lose = () => {
      for (const stream of server.streams) {
        board.say(stream, { channels: [{ ...board.channel("room"), complete: false, lost: true }] });
      }
    };
    lose();
    await want(presence, "room lost");
    expect(presence.channel("room")).toBeUndefined();
    await presence.watchChannels("room");
    await want(presence, "room 0/1");
    // The program watches the channel again before it takes the loss.
    lose();
    await eventually(() => presence.channel("room") === undefined);
    await presence.watchChannels("room");
    await want(presence, "room 0/1");
    // A loss that overtakes the answer is newer than its state.
    await presence.unwatchChannels("room");
    board.overtake = lose;
    server.hold = async (method) => {
      if (method === "WatchChannel") {
        board.set("ann", WEB);
        await eventually(() => presence.channel("hall")?.onlineCount === 1);
      }
    };
    await presence.watchChannels("room");
    await eventually(() => presence.channel("room") === undefined);
    await want(presence, "hall 1/1 ann", "room lost");
    expect(connects(server).length).toBe(1);
    // A channel that has outgrown the limits is lost with an error.
    for (const stream of server.streams) {
      board.say(stream, {
        channels: [{ ...board.channel("hall"), complete: false, lost: true, lostReason: ErrorReason.NODE_FULL }],
      });
    }
    expect(await presence.next()).toMatchObject({
      kind: "channel_lost",
      channelId: "hall",
      error: { reason: "NODE_FULL", retryable: true },
    });
  });

  it("loses a channel that a later stream is refused for", async () => {
    const server = new Fake();
    server.board.members.set("room", ["ann"]).set("hall", ["ann"]);
    const refusal = failure(Code.PermissionDenied, ErrorReason.NOT_MEMBER, { positions: [{ channelId: "room" }] });
    const refused = (message: unknown) => (message as pb.ConnectRequest).watchChannels?.includes("room");
    // Before the first stream, the refusal is an error.
    server.fault = (_, message) => (refused(message) ? { error: refusal } : undefined);
    const early = connect(newClient(server), { watchChannels: ["room"] });
    expect(await rejected(early.next(), ParleyError)).toMatchObject({ reason: "NOT_MEMBER" });
    server.fault = () => undefined;
    const states = new States();
    const presence = connect(newClient(server), { watchChannels: ["room", "hall"] }, states);
    await want(presence, "room 0/1", "hall 0/1");
    server.fault = (_, message) => (refused(message) ? { error: refusal } : undefined);
    server.endStreams();
    await want(presence, "room lost");
    await isLive(presence);
    expect(presence.channel("room")).toBeUndefined();
    expect(connects(server).map((r) => r.watchChannels.length)).toEqual([1, 2, 2, 1]);
    expect(states.waits.length).toBe(1);
    server.fault = () => undefined;
    await presence.watchChannels("room");
    await want(presence, "room 0/1");
    // A loss that was not taken is dropped when the channel is watched again.
    server.fault = (_, message) => (refused(message) ? { error: refusal } : undefined);
    server.endStreams();
    await eventually(() => connects(server).length === 6 && presence.state === "live");
    await presence.watchChannels("room");
    await want(presence, "room 0/1");
    await wantQuiet(presence);
  });

  it("reconnects if too many changes arrive before the first state", async () => {
    const server = new Fake();
    server.board.members.set("room", ["ann"]);
    server.board.late.add("room");
    const presence = connect(newClient(server), { watchChannels: ["room"] });
    await isLive(presence);
    server.board.late.clear();
    for (let n = 0; n < 1_001; n++) {
      server.board.set("ann", n % 2 === 0 ? WEB : Platform.IOS);
    }
    await want(presence, "room 1/1 ann");
    expect(connects(server).length).toBe(2);
  });
});

describe("the background", () => {
  it("is set on the live stream", async () => {
    const server = new Fake();
    const presence = connect(newClient(server), { background: true });
    await isLive(presence);
    expect(server.board.live).toMatchObject([{ background: true }]);
    presence.setBackground(true);
    presence.setBackground(false);
    await eventually(() => server.board.live[0]?.background === false);
    expect(server.of("SetBackground")).toMatchObject([{ background: false }]);
    server.endStreams();
    await eventually(() => connects(server).length === 2);
    expect(connects(server)[1]?.background).toBe(false);
  });

  it("is sent again after a failure, in its newest state", async () => {
    const server = new Fake();
    const presence = connect(newClient(server));
    await isLive(presence);
    let faults = 0;
    server.fault = (method) => {
      if (method !== "SetBackground" || faults++ > 0) {
        return undefined;
      }
      presence.setBackground(false);
      return { error: failure(Code.Unavailable, ErrorReason.STORE_UNAVAILABLE) };
    };
    presence.setBackground(true);
    await eventually(() => faults === 2);
    await presence.watch("ann");
    expect(sent(server)).toEqual([true, false]);
    expect(connects(server).length).toBe(1);
  });

  it("ends the presence if the server refuses it", async () => {
    const server = new Fake();
    const presence = connect(newClient(server));
    await isLive(presence);
    server.faults(1, "SetBackground", { error: failure(Code.PermissionDenied, ErrorReason.CAPABILITY_MISSING) });
    presence.setBackground(true);
    expect(await rejected(presence.next(), ParleyError)).toMatchObject({ reason: "CAPABILITY_MISSING" });
    await presence.done;
  });
});

import { ErrorReason, KickCause } from "@parleyhq/api/parley/v1/error_pb.js";
import { Platform } from "@parleyhq/api/parley/v1/platform_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/presence_pb.js";
import { describe, expect, it } from "vitest";
import { ClosedError, Code, ParleyError } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { eventually, newClient, rejected, States } from "./helper.js";
import { connect, connects, isLive, want, wantQuiet } from "./presencehelper.js";

const { ANDROID, IOS, LINUX, WEB } = Platform;

const ends: Record<string, (server: Fake) => void> = {
  "broken off": (s) => s.endStreams(),
  "shutting down": (s) => s.endStreams(failure(Code.Unavailable, ErrorReason.SHUTTING_DOWN)),
  "stream stalled": (s) => s.endStreams(failure(Code.Aborted, ErrorReason.STREAM_STALLED)),
  advice: (s) => s.advise(20),
};

describe("a presence", () => {
  it("makes a device online and delivers states", async () => {
    const server = new Fake();
    server.board.set("ann", WEB, { platform: IOS, background: true });
    const presence = connect(newClient(server), { watch: ["ann", "bob"] });
    await want(presence, "ann WEB IOS(background)", "bob");
    expect(server.board.live).toMatchObject([{ user: "tester", platform: WEB, background: false }]);
    expect(connects(server)).toMatchObject([{ deviceId: "tab-1", invisible: false, loginToken: "" }]);
    expect(presence.user("ann")?.platforms[1]).toEqual({ platform: "IOS", background: true });
    expect([presence.loginToken, presence.connectionId]).toEqual(["login-1", "connection-1"]);
    expect(presence.user("carl")).toBeUndefined();
    server.board.set("ann");
    await want(presence, "ann");
    expect(presence.user("ann")?.platforms).toEqual([]);
    server.board.set("bob", 99 as Platform);
    await want(presence, "bob PLATFORM_99");
  });

  it("watches without being online if it is invisible", async () => {
    const server = new Fake();
    server.board.set("ann", LINUX);
    const presence = newClient(server).presence({ invisible: true, watch: ["ann"] });
    await want(presence, "ann LINUX");
    presence.setBackground(true);
    await presence.watch("bob");
    presence.close();
    await presence.done;
    expect(connects(server)).toMatchObject([{ invisible: true, platform: 0, deviceId: "" }]);
    expect(presence.loginToken).toBe("");
    expect([server.of("SetBackground"), server.of("Disconnect")]).toEqual([[], []]);
  });

  it("delivers only the newest state, and none that the program has", async () => {
    const server = new Fake();
    const presence = connect(newClient(server), { watch: ["ann", "bob"] });
    await want(presence, "ann", "bob");
    server.board.set("ann", WEB);
    server.board.set("ann", WEB, IOS);
    server.board.set("bob", WEB);
    server.board.set("bob");
    server.board.set("ann", IOS);
    await eventually(() => presence.user("ann")?.platforms[0]?.platform === "IOS");
    await want(presence, "ann IOS");
    await wantQuiet(presence);
  });

  it("delivers a repeated frame once", async () => {
    const server = new Fake();
    server.repeat = true;
    server.board.members.set("room", ["ann", "bob"]);
    const presence = connect(newClient(server), { watch: ["ann"], watchChannels: ["room"] });
    await want(presence, "ann", "room 0/2");
    server.board.set("ann", WEB);
    await want(presence, "ann WEB", "room 1/2 ann");
    await wantQuiet(presence);
  });

  it("orders the states of a stream by their revisions", async () => {
    const server = new Fake();
    const presence = connect(newClient(server), { watch: ["ann", "bob"] });
    await want(presence, "ann", "bob");
    const [stream] = server.streams;
    server.board.set("ann", WEB);
    const old = server.board.user("ann");
    server.board.set("ann", IOS);
    stream?.say({ case: "presence", value: { users: [old] } as unknown as pb.PresenceUpdate });
    server.board.set("bob", IOS);
    await eventually(() => presence.user("bob")?.platforms.length === 1);
    await want(presence, "ann IOS", "bob IOS");
    // The revisions of the next stream are lower: here, those of another server.
    const other = new Fake();
    other.board.set("ann", LINUX);
    const fleet = newClient([server, other], { random: () => 0.99 });
    const moving = connect(fleet, { watch: ["ann"] });
    await want(moving, "ann IOS");
    server.down = true;
    server.endStreams();
    await want(moving, "ann LINUX");
  });

  for (const [name, end] of Object.entries(ends)) {
    for (const protocol of ["connect", "grpc-web"] as const) {
      it(`keeps its login after a stream ends: ${name}, ${protocol}`, async () => {
        const server = new Fake();
        const states = new States();
        server.board.members.set("room", ["ann", "carl"]);
        const client = newClient(server, { protocol });
        const presence = connect(client, { watch: ["ann", "bob"], watchChannels: ["room"] }, states);
        await want(presence, "ann", "bob", "room 0/2");
        for (const n of [1, 2, 3]) {
          server.down = true;
          end(server);
          await eventually(() => states.waits.length >= n);
          server.board.set("ann", n % 2 === 1 ? WEB : IOS);
          server.down = false;
          await eventually(() => states.names.filter((s) => s === "live").length === n + 1);
          await want(presence, n % 2 === 1 ? "ann WEB" : "ann IOS", "room 1/2 ann");
        }
        await wantQuiet(presence);
        const [first, ...later] = connects(server);
        expect(first?.loginToken).toBe("");
        for (const request of later) {
          expect(request).toMatchObject({ loginToken: "login-1", watch: ["ann", "bob"], watchChannels: ["room"] });
        }
        expect(presence.connectionId).toBe("connection-4");
      });
    }
  }

  it("continues the login of a stored token", async () => {
    const server = new Fake();
    const states = new States();
    const presence = connect(newClient(server), { loginToken: "stored" }, states);
    await isLive(presence);
    expect(presence.loginToken).toBe("stored");
    expect(states.all.at(-1)).toMatchObject({ state: "live", loginToken: "stored" });
    expect(connects(server)).toMatchObject([{ loginToken: "stored" }]);
  });

  it("ends with KICKED, which names the winner and is never retried", async () => {
    const server = new Fake();
    const states = new States();
    const presence = connect(newClient(server), { watch: ["ann"] }, states);
    await want(presence, "ann");
    const kick = { cause: KickCause.LOGIN, deviceId: "phone", platform: ANDROID, connectionId: "connection-9" };
    server.board.kick(kick);
    const err = await rejected(presence.next(), ParleyError);
    expect(err).toMatchObject({ reason: "KICKED", code: Code.FailedPrecondition, retryable: false });
    expect(err.kick).toEqual({
      cause: "LOGIN",
      deviceId: "phone",
      platform: "ANDROID",
      connectionId: "connection-9",
      reason: "",
    });
    await presence.done;
    expect(presence.error).toBe(err);
    expect(states.names).toEqual(["connecting", "live", "ended"]);
    await rejected(presence.watch("bob"), ParleyError);
    // A login that lost while the program was away is refused before a first frame.
    expect(presence.loginToken).toBe("");
    const again = connect(newClient(server), { loginToken: "login-1" });
    expect(await rejected(again.next(), ParleyError)).toMatchObject({ reason: "KICKED", kick: { deviceId: "phone" } });
    expect(connects(server).length).toBe(2);
    expect(server.of("Disconnect")).toEqual([]);
  });

  it("ends with another final error", async () => {
    const server = new Fake();
    server.faults(1, "Connect", { error: failure(Code.PermissionDenied, ErrorReason.CAPABILITY_MISSING) });
    const presence = connect(newClient(server));
    expect(await rejected(presence.next(), ParleyError)).toMatchObject({ reason: "CAPABILITY_MISSING" });
    expect(connects(server).length).toBe(1);
  });

  it("rejects options that cannot be encoded", async () => {
    const client = newClient(new Fake());
    for (const [field, options] of [
      ["platform", { platform: "TOASTER" as "WEB" }],
      ["device_id", { deviceId: "\ud800" }],
      ["login_token", { loginToken: "\ud800" }],
      ["watch", { watch: [7 as unknown as string] }],
      ["watch_channels", { watchChannels: ["\ud800"] }],
    ] as const) {
      const err = await rejected(connect(client, options).next(), ParleyError);
      expect(err).toMatchObject({ reason: "INVALID_FIELD", field });
    }
  });

  it("reports when the states are lagging", async () => {
    const server = new Fake();
    const presence = connect(newClient(server), { watch: ["ann"] });
    await want(presence, "ann");
    expect(presence.lagging).toBe(false);
    server.board.setLagging(true);
    await want(presence, "lagging true");
    expect(presence.lagging).toBe(true);
    server.endStreams();
    await eventually(() => connects(server).length === 2 && presence.state === "live");
    await wantQuiet(presence);
    // The next stream does not repeat what is not so any more.
    server.board.lagging = false;
    server.endStreams();
    await want(presence, "lagging false");
  });

  it("treats a silent stream as dead, but not one with heartbeats", async () => {
    const server = new Fake();
    server.heartbeatMs = 80;
    const states = new States();
    const presence = connect(newClient(server), { watch: ["ann"] }, states);
    await want(presence, "ann");
    await new Promise((resolve) => setTimeout(resolve, 4 * server.heartbeatMs));
    expect(states.names).toEqual(["connecting", "live"]);
    server.silent = true;
    await eventually(() => states.waits.length > 0);
    server.silent = false;
    expect(states.waits[0]?.error).toMatchObject({ code: Code.Unavailable, retryable: true });
    await isLive(presence);
    await eventually(() => server.streams.size === 1);
  });

  it("replaces a token that expires on its stream", async () => {
    const server = new Fake();
    let minted = 0;
    server.tokens = new Set(["token-1"]);
    const presence = connect(newClient(server, { tokenSource: () => `token-${++minted}` }), { watch: ["ann"] });
    await want(presence, "ann");
    server.tokens = new Set(["token-2"]);
    server.endStreams(failure(Code.Unauthenticated, ErrorReason.TOKEN_EXPIRED));
    await eventually(() => minted === 2);
    await eventually(() => connects(server).some((r) => r.loginToken === "login-1") && presence.state === "live");
    server.board.set("ann", WEB);
    await want(presence, "ann WEB");
  });

  it("moves to another node when its node fails", async () => {
    const servers = [new Fake(), new Fake()];
    const states = new States();
    const presence = connect(newClient(servers), { watch: ["ann"] }, states);
    await want(presence, "ann");
    const [first, second] = servers[0]?.streams.size === 1 ? servers : [...servers].reverse();
    (first as Fake).down = true;
    first?.endStreams();
    await eventually(() => second?.streams.size === 1 && presence.state === "live");
    expect(states.waits).toMatchObject([{ wait: 0 }]);
    expect(connects(second as Fake)).toMatchObject([{ loginToken: "login-1", watch: ["ann"] }]);
  });
});

describe("the end of a presence", () => {
  it("makes the user offline before the stream ends", async () => {
    const server = new Fake();
    const states = new States();
    const presence = connect(newClient(server), { watch: ["ann"] }, states);
    await want(presence, "ann");
    const [stream] = server.streams;
    server.board.set("ann", WEB);
    await eventually(() => presence.user("ann")?.platforms.length === 1);
    presence.close();
    presence.close();
    await rejected(presence.next(), ClosedError);
    await presence.done;
    expect(server.of("Disconnect")).toMatchObject([{ streamId: stream?.id }]);
    await eventually(() => server.streams.size === 0);
    expect(states.names).toEqual(["connecting", "live", "ended"]);
    expect(presence.error).toBeInstanceOf(ClosedError);
    expect(String(presence.error)).toContain("presence");
    for await (const event of presence) {
      expect(event).toBeUndefined();
    }
    await rejected(presence.watch("bob"), ClosedError);
    presence.setBackground(true);
    expect(connects(server).length).toBe(1);
  });

  it("is the same when its client is closed or its signal is aborted", async () => {
    const server = new Fake();
    const client = newClient(server);
    const controller = new AbortController();
    const one = connect(client, { signal: controller.signal });
    const other = connect(client);
    await isLive(one);
    await isLive(other);
    controller.abort(new Error("enough"));
    await expect(one.next()).rejects.toThrow("enough");
    await one.done;
    expect(server.of("Disconnect").length).toBe(1);
    client.close();
    await rejected(other.next(), ClosedError);
    await other.done;
    expect(server.of("Disconnect").length).toBe(2);
    await rejected(connect(client).next(), ClosedError);
    expect(connects(server).length).toBe(2);
  });

  it("does not wait for a server that it is not connected to", async () => {
    const server = new Fake();
    server.down = true;
    const states = new States();
    const presence = connect(newClient(server), {}, states);
    await eventually(() => states.waits.length > 0);
    presence.close();
    await presence.done;
    expect(server.of("Disconnect")).toEqual([]);
  });
});

describe("the presence of many users", () => {
  it("is loaded in requests of 500 users, in their order", async () => {
    const server = new Fake();
    const client = newClient(server);
    server.board.set("user-1100", WEB);
    const ids = Array.from({ length: 1_200 }, (_, n) => `user-${n}`);
    server.faults(1, "GetPresence", { error: failure(Code.Unavailable, ErrorReason.STORE_UNAVAILABLE) });
    const got = await client.getPresence(ids);
    expect(got.map((u) => u.userId)).toEqual(ids);
    expect(got.filter((u) => u.platforms.length > 0)).toEqual([
      { userId: "user-1100", platforms: [{ platform: "WEB", background: false }] },
    ]);
    expect(server.of<pb.GetPresenceRequest>("GetPresence").map((r) => r.userIds.length)).toEqual([500, 500, 500, 200]);
    expect(await client.getPresence([])).toEqual([]);
  });

  it("is listed by pages", async () => {
    const server = new Fake();
    for (let n = 0; n < 5; n++) {
      server.board.set(`user-${n}`, WEB);
    }
    server.board.set("gone");
    const got: string[] = [];
    for await (const user of newClient(server).onlineUsers({ pageSize: 2 })) {
      got.push(user.userId);
    }
    expect(got).toEqual(["user-0", "user-1", "user-2", "user-3", "user-4"]);
    expect(server.of<pb.ListOnlineUsersRequest>("ListOnlineUsers").map((r) => r.pageToken)).toEqual(["", "2", "4"]);
  });
});

import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/subscription_pb.js";
import { describe, expect, it } from "vitest";
import { after, Code, fromStart, live, ParleyError } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { eventually, newClient, nextEvent, rejected, subscribe, wantEntries, wantQuiet } from "./helper.js";

/** lastChannels returns the channels that the last stream requested. */
function lastChannels(server: Fake): string[] | undefined {
  return server
    .of<pb.SubscribeRequest>("Subscribe")
    .at(-1)
    ?.channels.map((p) => p.channelId);
}

/** secret restricts channels to the members tester and bob. */
function secret(server: Fake, ...ids: string[]): void {
  for (const id of ids) {
    server.log(id).members = new Set(["tester", "bob"]);
  }
}

function expel(server: Fake, id: string): void {
  server.log(id).members?.delete("tester");
  server.wake();
}

describe("a channel", () => {
  it("is lost after its earlier events, and can be added again", async () => {
    const server = new Fake();
    secret(server, "secret");
    const sub = subscribe(newClient(server), [fromStart("secret"), fromStart("open")]);
    server.post("secret", 3);
    await wantEntries(sub, "secret", 1, 1);
    expel(server, "secret");
    await wantEntries(sub, "secret", 2, 3);
    const lost = await nextEvent(sub);
    expect(lost).toEqual({ kind: "lost", channelId: "secret", seq: 3, epoch: "epoch-1", reason: "NOT_MEMBER" });
    expect(sub.position("secret")).toBeUndefined();
    server.post("secret");
    server.post("open");
    await wantEntries(sub, "open", 1, 1);
    server.endStreams();
    server.post("open");
    await wantEntries(sub, "open", 2, 2);
    expect(lastChannels(server)).toEqual(["open"]);
    expect(await rejected(sub.add(after(lost)), ParleyError)).toMatchObject({ reason: "NOT_MEMBER" });
    server.log("secret").members?.add("tester");
    await sub.add(after(lost));
    await wantEntries(sub, "secret", 4, 4);
    await wantQuiet(sub);
  });

  for (const again of [false, true]) {
    it(`is added again before its lost event was taken, and is ${again ? "accepted" : "refused"}`, async () => {
      const server = new Fake();
      secret(server, "secret");
      server.post("secret", 2);
      const sub = subscribe(newClient(server), [fromStart("secret"), fromStart("open")]);
      await wantEntries(sub, "secret", 1, 1);
      expel(server, "secret");
      // Until the loss has arrived, the channel is still followed.
      let refused = false;
      await eventually(() => {
        sub.add(fromStart("secret")).catch((err) => {
          refused ||= err.reason === "NOT_MEMBER";
        });
        return refused;
      });
      server.post("open");
      if (again) {
        server.log("secret").members?.add("tester");
        await sub.add(fromStart("secret"));
        const got = [];
        for (let i = 0; i < 3; i++) {
          const e = await nextEvent(sub);
          got.push(`${e.kind} ${e.channelId} ${e.seq}`);
        }
        expect(got.sort()).toEqual(["sent open 1", "sent secret 1", "sent secret 2"]);
      } else {
        await wantEntries(sub, "secret", 2, 2);
        expect((await nextEvent(sub)).kind).toBe("lost");
        await wantEntries(sub, "open", 1, 1);
      }
      await wantQuiet(sub);
    });
  }

  it("that is refused on a reconnect is lost, and the others continue at once", async () => {
    const server = new Fake();
    // Any wait would be longer than the test.
    const client = newClient(server, { backoff: { base: 1e6, max: 1e6 }, random: () => 0 });
    secret(server, "kept", "gone", "gone-too");
    const sub = subscribe(client, ["open", "kept", "gone", "gone-too"].map(fromStart));
    for (let i = 0; i < 4; i++) {
      await nextEvent(sub, "channel_state");
    }
    server.silent = true;
    server.post("kept");
    server.post("open");
    expel(server, "gone");
    expel(server, "gone-too");
    server.silent = false;
    server.endStreams();
    const lost = [await nextEvent(sub, "lost"), await nextEvent(sub, "lost")].map((e) => e.channelId);
    expect(lost.sort()).toEqual(["gone", "gone-too"]);
    const got = [await nextEvent(sub), await nextEvent(sub)].map((e) => e.channelId);
    expect(got.sort()).toEqual(["kept", "open"]);
    expect(lastChannels(server)).toEqual(["open", "kept"]);
  });

  it("that the first stream refuses ends the subscription with an error", async () => {
    const server = new Fake();
    server.log("secret").members = new Set();
    const sub = subscribe(newClient(server), [live("open"), live("secret")]);
    const err = await rejected(sub.next(), ParleyError);
    expect(err.reason).toBe("NOT_MEMBER");
    expect(err.positions.map((p) => p.channelId)).toEqual(["secret"]);
  });

  it("that is refused but not followed makes the subscription wait and continue", async () => {
    const server = new Fake();
    const sub = subscribe(newClient(server), fromStart("open"));
    await nextEvent(sub, "channel_state");
    const error = failure(Code.PermissionDenied, ErrorReason.NOT_MEMBER, { positions: [{ channelId: "another" }] });
    server.faults(3, "Subscribe", { error });
    server.endStreams();
    server.post("open");
    await wantEntries(sub, "open", 1, 1);
  });
});

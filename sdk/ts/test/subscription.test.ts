import { create } from "@bufbuild/protobuf";
import type { ChannelMessage } from "@parleyhq/api/parley/v1/channel_pb.js";
import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import * as pb from "@parleyhq/api/parley/v1/subscription_pb.js";
import { describe, expect, it } from "vitest";
import {
  after,
  ClosedError,
  Code,
  type EntryEvent,
  type Event,
  fromStart,
  live,
  ParleyError,
  type Subscription,
} from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { eventually, newClient, nextEvent, rejected, States, subscribe, wantEntries, wantQuiet } from "./helper.js";

const ends: Record<string, (server: Fake) => void> = {
  "broken off": (s) => s.endStreams(),
  "slow consumer": (s) => s.endStreams(failure(Code.ResourceExhausted, ErrorReason.SLOW_CONSUMER)),
  "shutting down": (s) => s.endStreams(failure(Code.Unavailable, ErrorReason.SHUTTING_DOWN)),
  "a reason of the future": (s) => s.endStreams(failure(Code.Unknown, 999)),
  advice: (s) => s.advise(20),
};

/** wantSeqs takes as many entries as are wanted and compares their ranges. */
async function wantSeqs(sub: Subscription, want: (number | [from: number, seq: number])[]): Promise<void> {
  const got: [number, number][] = [];
  while (got.length < want.length) {
    const { kind, fromSeq, seq } = (await nextEvent(sub)) as EntryEvent;
    expect(kind).toBe("sent");
    got.push([fromSeq, seq]);
  }
  expect(got).toEqual(want.map((one) => (typeof one === "number" ? [one, one] : one)));
}

describe("a subscription", () => {
  for (const [name, end] of Object.entries(ends)) {
    for (const protocol of ["connect", "grpc-web"] as const) {
      it(`resumes after a stream ends: ${name}, ${protocol}`, async () => {
        const server = new Fake();
        server.post("room", 4);
        const sub = subscribe(newClient(server, { protocol }), [after({ channelId: "room", seq: 1 }), live("idle")]);
        await wantEntries(sub, "room", 2, 4);
        for (const next of [5, 10, 15]) {
          end(server);
          server.post("room", 5);
          await wantEntries(sub, "room", next, next + 4);
          await eventually(() => server.streams.size === 1);
        }
        await wantQuiet(sub);
      });
    }
  }

  it("drops repeated events", async () => {
    const server = new Fake();
    server.repeat = true;
    server.post("room", 10);
    const sub = subscribe(newClient(server), fromStart("room"));
    await wantEntries(sub, "room", 1, 10);
    server.post("room", 3);
    await wantEntries(sub, "room", 11, 13);
    await wantQuiet(sub);
    expect(server.of("Subscribe").length).toBe(1);
  });

  it("that started live resumes from its first state", async () => {
    const server = new Fake();
    server.post("room", 3);
    const sub = subscribe(newClient(server), live("room"));
    expect(await nextEvent(sub, "channel_state")).toMatchObject({ seq: 3, state: { count: 3, recovered: false } });
    server.down = true;
    server.endStreams();
    server.post("room", 2);
    server.down = false;
    await wantEntries(sub, "room", 4, 5);
  });

  it("treats a silent stream as dead, but not one with heartbeats", async () => {
    const server = new Fake();
    server.heartbeatMs = 80;
    const states = new States();
    const sub = subscribe(newClient(server), live("room"), states);
    await nextEvent(sub, "channel_state");
    await new Promise((resolve) => setTimeout(resolve, 4 * server.heartbeatMs));
    expect(states.names).toEqual(["connecting", "live"]);
    server.silent = true;
    server.post("room");
    await eventually(() => states.waits.length > 0);
    server.silent = false;
    await wantEntries(sub, "room", 1, 1);
    expect(states.waits[0]?.error).toMatchObject({ code: Code.Unavailable, retryable: true });
    // The server has detected the end of the stream that was left.
    await eventually(() => server.streams.size === 1);
  });

  it("keeps the stream of a slow program, and bounds the queued frames", async () => {
    const server = new Fake();
    server.heartbeatMs = 200;
    const states = new States();
    server.post("room");
    const sub = subscribe(newClient(server), fromStart("room"), states);
    await eventually(() => server.streams.size === 1);
    const [stream] = server.streams;
    for (let i = 0; i < 60; i++) {
      server.post("room");
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    // Four frames are queued, one waits for room in the queue, and a few are in transit.
    expect(stream?.said).toBeLessThan(12);
    await wantEntries(sub, "room", 1, 61);
    expect(states.names).toEqual(["connecting", "live"]);
  });

  it("replaces a token that expires on its stream", async () => {
    const server = new Fake();
    let minted = 0;
    server.tokens = new Set(["token-1"]);
    const sub = subscribe(newClient(server, { tokenSource: () => `token-${++minted}` }), live("room"));
    await nextEvent(sub, "channel_state");
    for (const n of [2, 3, 4]) {
      server.tokens = new Set([`token-${n}`]);
      server.endStreams(failure(Code.Unauthenticated, ErrorReason.TOKEN_EXPIRED));
      await eventually(() => minted === n);
      server.post("room");
      await wantEntries(sub, "room", n - 1, n - 1);
    }
    expect(minted).toBe(4);
  });

  it("ends with a final error", async () => {
    const server = new Fake();
    server.post("room", 2);
    const states = new States();
    const sub = subscribe(newClient(server), fromStart("room"), states);
    await wantEntries(sub, "room", 1, 2);
    server.endStreams(failure(Code.PermissionDenied, ErrorReason.CAPABILITY_MISSING));
    const all = (async () => {
      for await (const e of sub) {
        expect(e.kind).toBe("never");
      }
    })();
    expect(await rejected(all, ParleyError)).toMatchObject({ reason: "CAPABILITY_MISSING" });
    expect(sub.error).toMatchObject({ reason: "CAPABILITY_MISSING" });
    expect(states.names).toEqual(["connecting", "live", "ended"]);
    await expect(sub.add(live("more"))).rejects.toBe(sub.error);

    server.tokens = new Set(["another"]);
    const expired = subscribe(newClient(server), live("room"));
    expect(await rejected(expired.next(), ParleyError)).toMatchObject({ reason: "TOKEN_EXPIRED" });
    const broken = subscribe(newClient(server), live("\ud800"));
    expect(await rejected(broken.next(), ParleyError)).toMatchObject({ reason: "INVALID_FIELD", field: "channels" });
  });

  it("distinguishes taken positions from arrived ones", async () => {
    const server = new Fake();
    server.post("room", 9);
    const client = newClient(server);
    const sub = subscribe(client, [fromStart("room"), live("idle")]);
    await wantEntries(sub, "room", 1, 4);
    const position = sub.position("room");
    expect(position).toEqual({ channelId: "room", seq: 4, epoch: "epoch-1" });
    sub.close();
    await rejected(sub.next(), ClosedError);
    for await (const e of sub) {
      expect(e.kind).toBe("never");
    }
    await sub.done;
    expect(sub.state).toBe("ended");
    await eventually(() => server.streams.size === 0);
    await wantEntries(subscribe(client, after(position as { channelId: string; seq: number })), "room", 5, 9);
  });

  it("returns one event to each of several concurrent calls of next", async () => {
    const server = new Fake();
    const sub = subscribe(newClient(server), fromStart("room"));
    await nextEvent(sub, "channel_state");
    const taking = Array.from({ length: 12 }, () => sub.next());
    server.post("room", 4);
    await taking[0];
    server.post("room", 8);
    const seqs = (await Promise.all(taking)).map((e) => e.seq);
    expect(seqs).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    expect(sub.position("room")?.seq).toBe(12);
  });

  it("continues after a call of next was aborted", async () => {
    const server = new Fake();
    const sub = subscribe(newClient(server), fromStart("room"));
    await nextEvent(sub, "channel_state");
    for (let i = 1; i <= 20; i++) {
      const controller = new AbortController();
      const taking = sub.next(controller.signal);
      server.post("room");
      if (i % 2 === 0) {
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      controller.abort("given up");
      const seq = await taking.then(
        (e) => e.seq,
        async (err) => {
          expect(err).toBe("given up");
          return (await nextEvent(sub)).seq;
        },
      );
      expect(seq).toBe(i);
    }
  });

  it("ends when its signal is aborted and when its client is closed", async () => {
    const server = new Fake();
    const controller = new AbortController();
    const client = newClient(server);
    const bySignal = client.subscribe(live("room"), { signal: controller.signal });
    await nextEvent(bySignal, "channel_state");
    const reason = new Error("signed out");
    controller.abort(reason);
    await expect(bySignal.next()).rejects.toBe(reason);
    const byClient = subscribe(client, live("room"));
    await nextEvent(byClient, "channel_state");
    client.close();
    await rejected(byClient.next(), ClosedError);
    await rejected(subscribe(client, live("room")).next(), ClosedError);
    await eventually(() => server.streams.size === 0);
  });

  it("continues after a gap", async () => {
    const server = new Fake();
    server.post("room", 9);
    server.log("room").oldest = 6;
    const sub = subscribe(newClient(server), after({ channelId: "room", seq: 2 }));
    expect(await nextEvent(sub, "channel_state")).toMatchObject({
      state: { oldestSeq: 6, headSeq: 9, count: 9, expiredCount: 5, recovered: false },
    });
    expect(await nextEvent(sub)).toMatchObject({
      kind: "gap",
      seq: 5,
      gap: { afterSeq: 2, toSeq: 5, epoch: "epoch-1", reason: "HISTORY_GONE" },
    });
    await wantEntries(sub, "room", 6, 9);
    // A restored log: the position moves backwards.
    server.log("room").entries.length = 7;
    server.log("room").epoch = "epoch-2";
    server.endStreams();
    expect(await nextEvent(sub)).toMatchObject({
      kind: "gap",
      seq: 7,
      epoch: "epoch-2",
      gap: { reason: "EPOCH_CHANGED" },
    });
    expect(sub.position("room")).toEqual({ channelId: "room", seq: 7, epoch: "epoch-2" });
    server.post("room");
    await wantEntries(sub, "room", 8, 8);
  });

  it("leaves a stream that skips entries, and reports a gap at the third time", async () => {
    const server = new Fake();
    const states = new States();
    const sub = subscribe(newClient(server), fromStart("room"), states);
    server.post("room", 2);
    await wantEntries(sub, "room", 1, 2);
    server.log("room").skip.set(3, 2);
    server.post("room", 2);
    await wantEntries(sub, "room", 3, 4);
    expect(states.waits.map((c) => (c.error as ParleyError).code)).toEqual([Code.DataLoss, Code.DataLoss]);
    server.log("room").skip.set(5, 3);
    server.post("room", 2);
    expect(await nextEvent(sub)).toMatchObject({ kind: "gap", seq: 5, gap: { afterSeq: 4, toSeq: 5, reason: "" } });
    await wantEntries(sub, "room", 6, 6);
    await wantQuiet(sub);
  });

  it("counts every entry that an event covers as seen", async () => {
    const server = new Fake();
    const states = new States();
    const log = server.log("room");
    server.post("room", 6);
    log.covered.add(2).add(3).add(6);
    const sub = subscribe(newClient(server), fromStart("room"), states);
    await wantSeqs(sub, [1, [2, 4], 5]);
    server.post("room");
    await wantSeqs(sub, [[6, 7]]);
    expect(sub.position("room")?.seq).toBe(7);
    // The position lies within the range of entries that the next event covers.
    log.covered.add(8).add(9);
    server.post("room", 3);
    await wantSeqs(sub, [[8, 10]]);
    const middle = subscribe(newClient(server), after({ channelId: "room", seq: 8 }));
    await wantSeqs(middle, [[8, 10]]);
    middle.close();
    await middle.done;
    expect(states.names).toEqual(["connecting", "live"]);
    // Entry 11 is missing before the range of the next event.
    await eventually(() => server.streams.size === 1);
    log.skip.set(11, 1);
    log.covered.add(12);
    server.post("room", 3);
    await wantSeqs(sub, [11, [12, 13]]);
    expect(states.waits.map((c) => (c.error as ParleyError).code)).toEqual([Code.DataLoss]);
  });

  it("reports a gap at the third hole before an event that covers several entries", async () => {
    const server = new Fake();
    server.post("room", 1);
    const sub = subscribe(newClient(server), fromStart("room"));
    await wantSeqs(sub, [1]);
    server.log("room").skip.set(2, 3).set(3, 3);
    server.log("room").covered.add(4);
    server.post("room", 4);
    expect(await nextEvent(sub)).toMatchObject({ kind: "gap", seq: 3, gap: { afterSeq: 1, toSeq: 3, reason: "" } });
    await wantSeqs(sub, [[4, 5]]);
    expect(sub.position("room")?.seq).toBe(5);
  });

  it("treats an invalid from_seq as the event's own seq", async () => {
    const server = new Fake();
    const sub = subscribe(newClient(server), fromStart("room"));
    await nextEvent(sub, "channel_state");
    const [stream] = server.streams;
    const other = server.log("other");
    server.log("room").skip.set(1, 9).set(2, 9).set(3, 9).set(4, 9);
    for (const [seq, from] of [
      [1, 0],
      [2, 9],
    ] as const) {
      other.send("bob", { content: `${seq}`, clientMsgId: `${seq}` });
      const value = { ...(other.messages[seq - 1] as ChannelMessage), seq: BigInt(seq) };
      stream?.push("room", seq, { case: "sent", value }, from);
    }
    await wantSeqs(sub, [1, 2]);
    // An unknown kind of event covers entries too.
    stream?.push("room", 4, { case: undefined }, 3);
    server.post("room", 5);
    await wantSeqs(sub, [5]);
  });

  it("ignores unknown kinds of frames", async () => {
    const server = new Fake();
    const states = new States();
    server.heartbeatMs = 80;
    const sub = subscribe(newClient(server), fromStart("room"), states);
    await nextEvent(sub, "channel_state");
    const [stream] = server.streams;
    stream?.say({ case: undefined });
    server.post("room");
    await wantEntries(sub, "room", 1, 1);
    expect(states.names).toEqual(["connecting", "live"]);
  });

  it("ignores unknown kinds of events", async () => {
    const server = new Fake();
    const sub = subscribe(newClient(server), fromStart("room"));
    await nextEvent(sub, "channel_state");
    const [stream] = server.streams;
    server.log("room").skip.set(1, 9);
    stream?.push("room", 1, { case: undefined });
    server.post("room", 2);
    await wantEntries(sub, "room", 2, 2);
  });

  it("delivers typing events without moving the position", async () => {
    const server = new Fake();
    const sub = subscribe(newClient(server), fromStart("room"));
    server.post("room");
    await wantEntries(sub, "room", 1, 1);
    const ann = newClient(server, { token: "ann" });
    await ann.typing("room");
    const want: Event = { kind: "typing", channelId: "room", seq: 0, epoch: "epoch-1", userId: "ann" };
    expect(await nextEvent(sub)).toEqual(want);
    expect(sub.position("room")?.seq).toBe(1);
    server.faults(1, "SendTyping", { error: failure(Code.Unavailable, ErrorReason.STORE_UNAVAILABLE) });
    const before = server.requests.length;
    expect(await rejected(ann.typing("room"), ParleyError)).toMatchObject({ reason: "STORE_UNAVAILABLE" });
    expect(server.requests.length).toBe(before + 1);
  });

  it("ends if a seq is larger than Number.MAX_SAFE_INTEGER", async () => {
    const server = new Fake();
    const sub = subscribe(newClient(server), fromStart("room"));
    await nextEvent(sub, "channel_state");
    const [stream] = server.streams;
    const message = server.log("other");
    message.send("bob", { content: "x", clientMsgId: "x" });
    stream?.push("room", 0, { case: "sent", value: message.messages[0] as ChannelMessage });
    stream?.push("room", 2 ** 60, { case: "gap", value: create(pb.ChannelGapSchema) });
    expect(await rejected(nextEvent(sub), ParleyError)).toMatchObject({ code: Code.OutOfRange, retryable: false });
  });

  it("continues if the program's onState throws", async () => {
    const server = new Fake();
    const thrown: unknown[] = [];
    const catching = (err: unknown) => thrown.push(err);
    const listeners = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    process.on("uncaughtException", catching);
    const sub = newClient(server).subscribe(fromStart("room"), {
      onState: ({ state }) => {
        throw new Error(state);
      },
    });
    await nextEvent(sub, "channel_state");
    sub.close();
    await eventually(() => thrown.length === 3);
    process.off("uncaughtException", catching);
    for (const listener of listeners) {
      process.on("uncaughtException", listener);
    }
    expect(thrown.map(String)).toEqual(["Error: connecting", "Error: live", "Error: ended"]);
  });
});

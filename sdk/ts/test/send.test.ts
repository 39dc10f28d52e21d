import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { ConnectError } from "@connectrpc/connect";
import type { ChannelMessage } from "@parleyhq/api/parley/v1/channel_pb.js";
import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/message_pb.js";
import { describe, expect, it } from "vitest";
import { Code, InterruptedError, ParleyError } from "../src/index.js";
import { Fake, type Fault, failure } from "./fake.js";
import { newClient, rejected } from "./helper.js";

const passing: Record<string, Fault> = {
  refused: { error: failure(Code.Unavailable, ErrorReason.STORE_UNAVAILABLE) },
  "outcome unknown": { error: failure(Code.Unavailable, ErrorReason.OUTCOME_UNKNOWN), applied: true },
  "answer lost": { drop: true, applied: true },
  "connection lost before": { drop: true },
  "a proxy's unavailable": { error: new ConnectError("", Code.Unavailable) },
  "a reason of the future": { error: failure(Code.FailedPrecondition, 4711) },
  internal: { error: failure(Code.Internal, ErrorReason.INTERNAL), applied: true },
  "over the rate limit": { error: failure(Code.ResourceExhausted, ErrorReason.RATE_LIMITED) },
  "the node is full": { error: failure(Code.ResourceExhausted, ErrorReason.NODE_FULL) },
  paused: { error: failure(Code.FailedPrecondition, ErrorReason.TOPIC_PAUSED) },
  "the server's own deadline": { error: failure(Code.DeadlineExceeded, ErrorReason.DEADLINE_EXCEEDED) },
};

describe("send", () => {
  for (const [name, fault] of Object.entries(passing)) {
    for (const protocol of ["connect", "grpc-web"] as const) {
      it(`retries with the same id: ${name}, ${protocol}`, async () => {
        const server = new Fake();
        server.faults(3, "SendMessage", fault);
        const receipt = await newClient(server, { protocol }).send("room", "hello");
        expect(server.log("room").messages.map((m) => m.content)).toEqual(["hello"]);
        expect(receipt).toMatchObject({ seq: 1, duplicate: fault.applied ?? false });
        const ids = server.of<pb.SendMessageRequest>("SendMessage").map((r) => r.clientMsgId);
        expect(ids).toEqual(Array(4).fill(receipt.clientMsgId));
        expect(receipt.clientMsgId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7/);
      });
    }
  }

  it("does not retry a final error", async () => {
    const server = new Fake();
    const client = newClient(server);
    const finals = Object.values(ErrorReason).filter((n) => typeof n === "number" && n > 0 && n < 100) as number[];
    for (const reason of [...finals, 99]) {
      const before = server.requests.length;
      server.faults(1, "SendMessage", { error: failure(Code.Unavailable, reason) });
      const err = await rejected(client.send("room", "hello"), ParleyError);
      expect(err).toMatchObject({
        reason: ErrorReason[reason] ?? "REASON_99",
        retryable: false,
        requestId: "test-request",
      });
      expect(server.requests.length).toBe(before + 1);
    }
    expect(server.log("room").head).toBe(0);
  });

  it("waits at least for retryAfter", async () => {
    const server = new Fake();
    const error = failure(Code.ResourceExhausted, ErrorReason.RATE_LIMITED, { retryAfter: durationFromMs(150) });
    server.faults(1, "SendMessage", { error });
    const began = performance.now();
    await newClient(server).send("room", "hello");
    expect(performance.now() - began).toBeGreaterThanOrEqual(149);
  });

  it("rejects with the signal's reason and the last failure when its signal is aborted", async () => {
    const server = new Fake();
    server.faults(1e9, "SendMessage", { error: failure(Code.Unavailable, ErrorReason.STORE_UNAVAILABLE) });
    const signal = AbortSignal.timeout(100);
    const err = await rejected(newClient(server).send("room", "hello", { signal }), InterruptedError);
    expect(err.name).toBe("TimeoutError");
    expect(err.reason).toBe(signal.reason);
    expect(err.cause).toMatchObject({ reason: "STORE_UNAVAILABLE" });
  });

  it("rejects with the signal's reason if no attempt failed", async () => {
    const server = new Fake();
    server.faults(1e9, "SendMessage", { hang: true });
    const controller = new AbortController();
    const sending = newClient(server).send("room", "hello", { signal: controller.signal });
    controller.abort();
    expect(await rejected(sending, DOMException)).toBe(controller.signal.reason);
    const aborted = newClient(server).send("room", "hello", { signal: AbortSignal.abort("why") });
    await expect(aborted).rejects.toBe("why");
  });

  it("can share a signal with many calls, and removes its listeners", async () => {
    const server = new Fake();
    const client = newClient(server);
    const { signal } = new AbortController();
    let listeners = 0;
    const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
    let most = 0;
    signal.addEventListener = (...args: Parameters<typeof add>) => {
      most = Math.max(most, ++listeners);
      add(...args);
    };
    signal.removeEventListener = (...args: Parameters<typeof remove>) => {
      listeners--;
      remove(...args);
    };
    await Promise.all(Array.from({ length: 30 }, (_, i) => client.send("room", `${i}`, { signal })));
    expect([most, listeners]).toEqual([1, 0]);
  });

  it("ends an attempt that has no answer within its limit", async () => {
    const server = new Fake();
    server.faults(2, "SendMessage", { hang: true });
    await newClient(server, { attemptTimeout: 50 }).send("room", "hello");
    expect(server.requests.length).toBe(3);
  });

  it("rejects text that cannot be encoded before it is sent", async () => {
    const server = new Fake();
    const client = newClient(server);
    for (const content of ["broken \ud800 text", "\udc00", 5 as unknown as string]) {
      const err = await rejected(client.send("room", content), ParleyError);
      expect(err).toMatchObject({ reason: "INVALID_FIELD", field: "content", code: Code.InvalidArgument });
    }
    await rejected(client.send("room", "x", { metadata: { k: "\ud800" } }), ParleyError);
    expect(server.requests).toEqual([]);
    await client.send("room", "whole \ud83d\ude00 text");
    expect(server.log("room").messages[0]?.content).toBe("whole 😀 text");
  });

  it("returns every part of the server's error", async () => {
    const server = new Fake();
    const detail = {
      field: "messages[3].content",
      limit: 65536n,
      requestId: "abc",
      retryAfter: durationFromMs(1500),
      positions: [{ channelId: "room", seq: 7n, epoch: "e" }],
    };
    server.faults(1, "GetMessage", { error: failure(Code.InvalidArgument, ErrorReason.TOO_LARGE, detail) });
    const err = await rejected(newClient(server).get("room", "x"), ParleyError);
    expect(err).toMatchObject({
      code: Code.InvalidArgument,
      reason: "TOO_LARGE",
      field: "messages[3].content",
      limit: 65536,
      requestId: "abc",
      retryAfter: 1500,
      retryable: false,
      positions: [{ channelId: "room", seq: 7, epoch: "e" }],
    });
    expect(err.message).toBe("invalid_argument (TOO_LARGE): scripted [request abc]");
  });

  it("rejects an integer above Number.MAX_SAFE_INTEGER", async () => {
    const server = new Fake();
    const client = newClient(server);
    const { msgId } = await client.send("room", "hello");
    (server.log("room").messages[0] as ChannelMessage).seq = 2n ** 53n;
    expect(await rejected(client.get("room", msgId), ParleyError)).toMatchObject({ code: Code.OutOfRange });
  });

  it("edits, recalls and gets", async () => {
    const server = new Fake();
    const client = newClient(server);
    const { msgId } = await client.send("room", "frist", { type: "note", metadata: { k: "v" } });
    server.faults(1, "EditMessage", { drop: true, applied: true });
    expect(await client.edit("room", msgId, "first", { clientMsgId: "mine" })).toMatchObject({
      channelId: "room",
      msgId,
      message: { msgId, seq: 1, content: "first", status: "edited", changedSeq: 2 },
      seq: 2,
      clientMsgId: "mine",
      epoch: "epoch-1",
      duplicate: true,
    });
    expect(await client.get("room", msgId)).toMatchObject({
      epoch: "epoch-1",
      content: "first",
      status: "edited",
      type: "note",
      metadata: { k: "v" },
      fromId: "tester",
      changedSeq: 2,
    });
    expect(await client.recall("room", msgId)).toMatchObject({
      message: { msgId, seq: 1, content: "", metadata: {}, status: "recalled", changedSeq: 3 },
      seq: 3,
      epoch: "epoch-1",
      duplicate: false,
    });
    expect(await client.get("room", msgId)).toMatchObject({ content: "", status: "recalled", seq: 1, count: 1 });
  });

  it("rejects when its client is closed", async () => {
    const server = new Fake();
    server.faults(1e9, "SendMessage", { hang: true });
    const client = newClient(server);
    const sending = client.send("room", "hello");
    client.close();
    expect((await rejected(sending, DOMException)).name).toBe("AbortError");
    expect((await rejected(client.send("room", "hello"), DOMException)).name).toBe("AbortError");
  });
});

import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/session_pb.js";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ClosedError, Code, type OpenMessage, ParleyError } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { newClient, rejected } from "./helper.js";

/** deltas returns the pieces that the server was asked to append: offsets and texts. */
function deltas(server: Fake): [offset: number, text: string][] {
  return server
    .of<pb.AppendSessionDeltaRequest>("AppendSessionDelta")
    .map(({ offset, text }) => [Number(offset), text]);
}

/** soon lets everything run that waits for no timer, until check returns true. */
async function soon(check: () => boolean): Promise<void> {
  for (let i = 0; i < 2_000 && !check(); i++) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(check(), String(check)).toBe(true);
}

/** settle lets everything run that waits for no timer. */
async function settle(): Promise<void> {
  for (let i = 0; i < 50; i++) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** pass advances the clock and lets everything run that is due. */
async function pass(ms: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(ms);
  await settle();
}

/** begin opens a message of a new session. */
async function begin(server: Fake, clientMsgId?: string): Promise<OpenMessage> {
  const session = newClient(server, { random: () => 0.5 }).session("chat");
  await session.append("user", "hello", { clientMsgId: "prompt" });
  return session.open("assistant", { clientMsgId });
}

/** gate makes the server hold its answers to deltas until the returned function is called. */
function gate(server: Fake): () => void {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  server.hold = (method) => (method === "AppendSessionDelta" ? opened : Promise.resolve());
  return open;
}

/** endOf returns the error that ends a message. */
async function endOf(answer: OpenMessage): Promise<unknown> {
  await soon(() => answer.ended);
  return answer.signal.reason;
}

const seqLost = (limit: bigint) => failure(Code.OutOfRange, ErrorReason.POSITION_OUT_OF_RANGE, { limit });

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date", "performance"] });
});

afterEach(() => {
  vi.useRealTimers();
});

// Timers belong to the process, so tests of them have their own file.
describe.sequential("the text of an open message", () => {
  it("is sent at once, and then every 25 ms at most", async () => {
    const server = new Fake();
    const answer = await begin(server);
    await answer.write("a");
    await soon(() => deltas(server).length === 1);
    await answer.write("b");
    await answer.write("c");
    await pass(24);
    expect(deltas(server)).toEqual([[0, "a"]]);
    await pass(1);
    expect(deltas(server)).toEqual([
      [0, "a"],
      [1, "bc"],
    ]);
    await pass(1_000);
    await answer.write("");
    await answer.write("d");
    await soon(() => deltas(server).length === 3);
    expect(deltas(server).at(-1)).toEqual([3, "d"]);
    expect(server.of<pb.AppendSessionDeltaRequest>("AppendSessionDelta")[0]).toMatchObject({
      sessionId: "chat",
      msgId: answer.msgId,
      appendToken: "attempt 1",
    });
  });

  it("is sent without a wait once 4 KiB are waiting", async () => {
    const server = new Fake();
    const answer = await begin(server);
    await answer.write("a");
    await soon(() => deltas(server).length === 1);
    await answer.write("b".repeat(4_095));
    await settle();
    expect(deltas(server).length).toBe(1);
    await answer.write("c");
    await soon(() => deltas(server).length === 2);
    expect(deltas(server)[1]).toEqual([1, `${"b".repeat(4_095)}c`]);
  });

  it("is joined while a call is in flight", async () => {
    const server = new Fake();
    const answer = await begin(server);
    const open = gate(server);
    await answer.write("a");
    await soon(() => deltas(server).length === 1);
    for (const text of ["b", "c", "d".repeat(5_000)]) {
      await answer.write(text);
    }
    await pass(3_000);
    expect(deltas(server)).toEqual([[0, "a"]]);
    open();
    await soon(() => deltas(server).length === 2);
    expect(deltas(server)[1]).toEqual([1, `bc${"d".repeat(5_000)}`]);
    await pass(100);
    expect(deltas(server).length).toBe(2);
  });

  it("is cut at code points into calls of 16,384 bytes at most", async () => {
    const server = new Fake();
    const answer = await begin(server);
    const text = `a${"é€😀".repeat(6_000)}`;
    await answer.write(text);
    await soon(() => server.sessions.text(answer.msgId) === text);
    let offset = 0;
    for (const [at, piece] of deltas(server)) {
      expect(at).toBe(offset);
      expect(piece).not.toContain("\ufffd");
      offset += Buffer.byteLength(piece);
      expect(Buffer.byteLength(piece)).toBeLessThanOrEqual(16_384);
    }
    expect([offset, deltas(server).length]).toEqual([Buffer.byteLength(text), 4]);
  });

  it("makes the writer wait while more than 16 KiB are waiting", async () => {
    const server = new Fake();
    const answer = await begin(server);
    const open = gate(server);
    await answer.write("a".repeat(16_384));
    let written = false;
    const more = answer.write("b").then(() => {
      written = true;
    });
    await pass(1_000);
    expect(written).toBe(false);
    open();
    await more;
    expect(answer.text).toBe(`${"a".repeat(16_384)}b`);
  });

  it("is sent again from what the server has", async () => {
    const server = new Fake();
    const answer = await begin(server);
    await answer.write("héllo");
    await soon(() => deltas(server).length === 1);
    await pass(100);
    server.sessions.forget(answer.msgId, 3);
    await answer.write(" there");
    await pass(100);
    await soon(() => server.sessions.text(answer.msgId) === "héllo there");
    expect(deltas(server).slice(1)).toEqual([
      [6, " there"],
      [3, "llo there"],
    ]);
    // A limit within a code point, which no server sends.
    server.sessions.forget(answer.msgId, 1);
    server.faults(1, "AppendSessionDelta", { error: seqLost(2n) });
    await pass(100);
    await answer.write("!");
    await pass(100);
    expect(server.sessions.text(answer.msgId)).toBe("héllo there!");
  });

  it("waits longer and longer if the server loses it again and again", async () => {
    const server = new Fake();
    const answer = await begin(server);
    server.fault = (method, message) => {
      const { offset } = message as pb.AppendSessionDeltaRequest;
      return method === "AppendSessionDelta" && offset > 0n ? { error: seqLost(0n) } : undefined;
    };
    await answer.write("a".repeat(16_384));
    await soon(() => deltas(server).length === 1);
    await answer.write("b".repeat(5_000));
    await pass(10_000);
    expect(deltas(server).length).toBeGreaterThan(20);
    expect(deltas(server).length).toBeLessThan(1_000); // at 25 ms on average, without the waits of 5 ms
    server.fault = () => undefined;
    await pass(1_000);
    expect(server.sessions.text(answer.msgId).length).toBe(21_384);
  });

  it("ends the message if the server wants text from beyond what was sent", async () => {
    const server = new Fake();
    const answer = await begin(server);
    server.faults(1, "AppendSessionDelta", { error: seqLost(7n) });
    await answer.write("a");
    expect(await endOf(answer)).toMatchObject({ code: Code.OutOfRange, limit: 7 });
  });

  it("is retried for as long as the message is open", async () => {
    const server = new Fake();
    const answer = await begin(server);
    server.fault = (method) =>
      method === "AppendSessionDelta"
        ? { error: failure(Code.Unavailable, ErrorReason.STORE_UNAVAILABLE), applied: true }
        : undefined;
    await answer.write("hello");
    await pass(120_000);
    const tries = deltas(server).length;
    expect(tries).toBeGreaterThan(1_000);
    expect(answer.ended).toBe(false);
    server.fault = () => undefined;
    await pass(100);
    await answer.write("!");
    await pass(100);
    expect(server.sessions.text(answer.msgId)).toBe("hello!");
    expect(deltas(server).slice(0, tries)).toEqual(Array(tries).fill([0, "hello"]));
  });

  it("is kept alive by an empty delta every 15 s", async () => {
    const server = new Fake();
    const answer = await begin(server);
    await pass(14_900);
    expect(deltas(server)).toEqual([]);
    await pass(100);
    expect(deltas(server)).toEqual([[0, ""]]);
    await answer.write("hello");
    await pass(14_900);
    expect(deltas(server).length).toBe(2);
    await pass(15_200);
    expect(deltas(server).slice(2)).toEqual([
      [5, ""],
      [5, ""],
    ]);
    await answer.complete();
    await pass(60_000);
    expect(deltas(server).length).toBe(4);
  });

  it("has surrogate pairs that were divided, and no lone surrogate", async () => {
    const server = new Fake();
    const answer = await begin(server);
    await answer.write("a\ud83d");
    await answer.write("\ude00b");
    expect(await rejected(answer.write("c\udc00d"), ParleyError)).toMatchObject({ field: "content" });
    expect(await rejected(answer.write(1 as never), ParleyError)).toMatchObject({ field: "content" });
    await answer.write("\ud83d");
    expect(await rejected(answer.complete(), ParleyError)).toMatchObject({ reason: "INVALID_FIELD" });
    expect(await rejected(answer.complete("\udc00"), ParleyError)).toMatchObject({ reason: "INVALID_FIELD" });
    expect(answer.ended).toBe(false);
    expect((await answer.fail()).message?.content).toBe("a😀b");
  });

  it("has 131,072 bytes at most", async () => {
    const server = new Fake();
    const answer = await begin(server);
    for (let i = 0; i < 8; i++) {
      await answer.write("é".repeat(8_192 - (i === 0 ? 1 : 0)));
    }
    expect(await rejected(answer.write("abc"), ParleyError)).toMatchObject({
      code: Code.ResourceExhausted,
      reason: "LIMIT_EXCEEDED",
      field: "content",
      limit: 131_072,
    });
    await answer.write("ab");
    expect((await answer.complete()).message?.content.length).toBe(65_537);
  });
});

describe.sequential("an open message", () => {
  for (const outcome of ["complete", "cancel", "fail"] as const) {
    it(`is closed once, with everything that was written: ${outcome}`, async () => {
      const server = new Fake();
      const answer = await begin(server);
      await answer.write("half");
      server.faults(1, "CloseSessionMessage", { drop: true, applied: true });
      const closing = answer[outcome]();
      expect(answer.ended).toBe(true);
      await pass(1_000);
      const receipt = await closing;
      const status = { complete: "sent", cancel: "cancelled", fail: "failed" }[outcome];
      expect(receipt).toMatchObject({ msgId: answer.msgId, channelId: "~chat", seq: 3, duplicate: true });
      expect(receipt.message).toMatchObject({ content: "half", status, changedSeq: 3 });
      expect((await answer[outcome]()).duplicate).toBe(true);
      expect(await rejected(answer.write("more"), ParleyError)).toMatchObject({ reason: "MESSAGE_CLOSED" });
      expect(
        new Set(server.of<pb.CloseSessionMessageRequest>("CloseSessionMessage").map((r) => r.clientMsgId)).size,
      ).toBe(1);
    });
  }

  it("is closed with other content, while a delta has no answer", async () => {
    const server = new Fake();
    const answer = await begin(server);
    gate(server);
    await answer.write("draft");
    await soon(() => deltas(server).length === 1);
    expect((await answer.complete("final")).message).toMatchObject({ content: "final", status: "sent" });
  });

  it("ends when its user cancels it", async () => {
    const server = new Fake();
    const answer = await begin(server);
    await answer.write("one ");
    await soon(() => server.sessions.text(answer.msgId) === "one ");
    server.sessions.cancel("chat", answer.msgId);
    await pass(100);
    expect(answer.ended).toBe(false); // It learns of it by its next delta.
    await answer.write("two");
    const reason = await endOf(answer);
    expect(reason).toBeInstanceOf(ParleyError);
    expect(reason).toMatchObject({ reason: "MESSAGE_CLOSED", rawMessage: "the message is no longer open: cancelled" });
    await expect(answer.write("three")).rejects.toBe(reason);
    expect(await rejected(answer.complete(), ParleyError)).toMatchObject({
      reason: "MESSAGE_CLOSED",
      retryable: false,
    });
    expect(server.log("~chat").messages.at(-1)).toMatchObject({ content: "one " });
  });

  it("that nothing is written to ends within 15 s of that", async () => {
    const server = new Fake();
    const answer = await begin(server);
    server.sessions.cancel("chat", answer.msgId);
    await pass(15_000);
    expect(answer.ended).toBe(true);
  });

  it("ends when it is recalled, and a writer that waits is told", async () => {
    const server = new Fake();
    const answer = await begin(server);
    const open = gate(server);
    const waiting = rejected(answer.write("a".repeat(40_000)), ParleyError);
    await soon(() => deltas(server).length === 1);
    await newClient(server).session("chat").recall(answer.msgId);
    open();
    expect(await waiting).toMatchObject({ reason: "MESSAGE_RECALLED" });
  });

  it("ends when a later call continues it", async () => {
    const server = new Fake();
    const dead = await begin(server, "answer-1");
    await dead.write("from the dead");
    await soon(() => server.sessions.text(dead.msgId) !== "");
    const next = await begin(server, "answer-1");
    expect([next.msgId, next.receipt.duplicate]).toEqual([dead.msgId, true]);
    await next.write("anew");
    await soon(() => server.sessions.text(dead.msgId) === "anew");
    await pass(100);
    await dead.write(" more");
    expect(await endOf(dead)).toMatchObject({ reason: "APPEND_SUPERSEDED" });
    await next.complete();
    const late = await begin(server, "answer-1");
    expect(await rejected(late.write("x"), ParleyError)).toMatchObject({ reason: "MESSAGE_CLOSED" });
  });

  it("ends with a final error, and can still be closed", async () => {
    const server = new Fake();
    const answer = await begin(server);
    const refusal = failure(Code.ResourceExhausted, ErrorReason.LIMIT_EXCEEDED, { limit: 64n });
    server.faults(1, "AppendSessionDelta", { error: refusal });
    await answer.write("half");
    expect(await endOf(answer)).toMatchObject({ reason: "LIMIT_EXCEEDED", limit: 64 });
    expect((await answer.fail()).message).toMatchObject({ content: "half", status: "failed" });
  });

  it("ends when the client is closed, and keeps no timer", async () => {
    const server = new Fake();
    const client = newClient(server);
    await client.session("chat").append("user", "hello");
    const answer = await client.session("chat").open("assistant");
    await answer.write("a");
    await settle();
    client.close();
    expect(await rejected(answer.write("b"), ClosedError)).toMatchObject({ message: "the open message was closed" });
    await settle();
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe.sequential("the stream of an open message", () => {
  const words = (...chunks: string[]) => {
    const rest = [...chunks];
    return new ReadableStream<string>({
      pull: (controller) => {
        const chunk = rest.shift();
        if (chunk === undefined) {
          controller.close();
        } else {
          controller.enqueue(chunk);
        }
      },
    });
  };

  it("completes it when it is closed", async () => {
    const server = new Fake();
    const answer = await begin(server);
    expect(answer.writable).toBe(answer.writable);
    await words("one ", "two").pipeTo(answer.writable);
    expect(server.log("~chat").messages.at(-1)).toMatchObject({ content: "one two", status: 1 });
  });

  it("has room for 16 KiB beyond those that wait to be sent", async () => {
    const server = new Fake();
    const answer = await begin(server);
    const open = gate(server);
    const writer = answer.writable.getWriter();
    expect(writer.desiredSize).toBe(16_384);
    void writer.write("é".repeat(10_000));
    await settle();
    expect(writer.desiredSize).toBe(16_384 - 20_000);
    open();
    await writer.ready;
    expect(writer.desiredSize).toBe(16_384);
  });

  it("errors when the message ends, and cancels its source", async () => {
    const server = new Fake();
    const answer = await begin(server);
    let cancelled: unknown;
    const source = new ReadableStream<string>({
      pull: async (controller) => {
        await settle();
        controller.enqueue("word ");
      },
      cancel: (reason) => {
        cancelled = reason;
      },
    });
    const piped = rejected(source.pipeTo(answer.writable), ParleyError);
    await soon(() => server.sessions.text(answer.msgId) !== "");
    server.sessions.cancel("chat", answer.msgId);
    await pass(200);
    expect(await piped).toMatchObject({ reason: "MESSAGE_CLOSED" });
    expect(cancelled).toBe(answer.signal.reason);
    await expect(answer.writable.getWriter().closed).rejects.toBe(cancelled);
  });

  it("errors when the message ends while its source is silent", async () => {
    const server = new Fake();
    const answer = await begin(server);
    const silent = new ReadableStream<string>({});
    const piped = rejected(silent.pipeTo(answer.writable), ParleyError);
    server.sessions.cancel("chat", answer.msgId);
    await pass(15_000);
    expect(await piped).toMatchObject({ reason: "MESSAGE_CLOSED" });
  });

  it("closes the message as failed when it is aborted", async () => {
    const server = new Fake();
    const answer = await begin(server);
    const broken = new ReadableStream<string>({
      start: (controller) => controller.enqueue("half"),
      pull: async (controller) => {
        await settle();
        controller.error(new Error("the model is away"));
      },
    });
    await expect(broken.pipeTo(answer.writable)).rejects.toThrow("the model is away");
    await soon(() => server.log("~chat").messages.at(-1)?.content === "half");
    expect(server.log("~chat").messages.at(-1)?.status).toBe(6);
  });

  it("errors if the message ended before", async () => {
    const server = new Fake();
    const answer = await begin(server);
    await answer.cancel();
    await expect(answer.writable.getWriter().closed).rejects.toBe(answer.signal.reason);
  });
});

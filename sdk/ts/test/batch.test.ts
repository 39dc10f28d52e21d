import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/message_pb.js";
import { describe, expect, it } from "vitest";
import { Code, InterruptedError, type Outgoing, ParleyError } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { newClient, rejected } from "./helper.js";

function batch(channelId: string, from: number, to: number): Outgoing[] {
  return Array.from({ length: to - from + 1 }, (_, i) => ({
    channelId,
    content: `${from + i}`,
    clientMsgId: `${channelId}-${from + i}`,
  }));
}

/** sent returns the ids of each request's messages. */
function sent(server: Fake): string[][] {
  return server.of<pb.SendMessagesRequest>("SendMessages").map((r) => r.messages.map((m) => m.clientMsgId));
}

describe("a batch", () => {
  it("is sent in parts, in order, each once", async () => {
    const server = new Fake();
    server.faults(2, "SendMessages", { drop: true, applied: true });
    const results = await newClient(server).sendBatch(batch("room", 1, 1_100));
    expect(results.map((r) => r.receipt?.seq)).toEqual(Array.from({ length: 1_100 }, (_, i) => i + 1));
    expect(results[0]?.receipt?.duplicate).toBe(true);
    expect(sent(server).map((ids) => ids.length)).toEqual([500, 500, 500, 500, 100]);
  });

  it("keeps each request below the size limit", async () => {
    const server = new Fake();
    const big = batch("room", 1, 80).map((m) => ({ ...m, content: "x".repeat(60_000) }));
    await newClient(server).sendBatch(big);
    expect(sent(server).map((ids) => ids.length)).toEqual([33, 33, 14]);
  });

  it("repeats only retryable messages, before later ones", async () => {
    const server = new Fake();
    const passing = { error: failure(Code.Unavailable, ErrorReason.OUTCOME_UNKNOWN), applied: true };
    const final = { error: failure(Code.AlreadyExists, ErrorReason.CLIENT_MSG_ID_REUSED) };
    let left = 2;
    server.fault = (method) => {
      if (method === "SendMessages/a-2" && left-- > 0) {
        return passing;
      }
      return method === "SendMessages/b-1" ? final : undefined;
    };
    const results = await newClient(server).sendBatch([...batch("a", 1, 3), ...batch("b", 1, 2)]);
    expect(sent(server)).toEqual([
      ["a-1", "a-2", "a-3", "b-1", "b-2"],
      ["a-2", "a-3"],
      ["a-2", "a-3"],
    ]);
    expect(results.map((r) => r.receipt?.seq ?? (r.error as ParleyError).reason)).toEqual([
      1,
      2,
      3,
      "CLIENT_MSG_ID_REUSED",
      1,
    ]);
  });

  it("rejects an item that cannot be encoded, and sends the others", async () => {
    const server = new Fake();
    const messages = batch("room", 1, 3);
    (messages[1] as Outgoing).content = "\ud800";
    const results = await newClient(server).sendBatch(messages);
    expect(results.map((r) => r.receipt?.seq)).toEqual([1, undefined, 2]);
    expect(results[1]?.error).toMatchObject({ reason: "INVALID_FIELD", field: "content" });
    expect(await newClient(server).sendBatch([])).toEqual([]);
  });

  it("that is refused as a whole rejects with the results so far", async () => {
    const server = new Fake();
    server.fault = (method) =>
      method === "SendMessages" && server.requests.length === 2
        ? { error: failure(Code.PermissionDenied, ErrorReason.CAPABILITY_MISSING) }
        : undefined;
    const err = await rejected(newClient(server).sendBatch(batch("room", 1, 600)), ParleyError);
    expect(err.reason).toBe("CAPABILITY_MISSING");
    expect(err.results?.filter((r) => r.receipt !== undefined).length).toBe(500);
    expect(err.results?.[599]?.error).toMatchObject({ reason: "CAPABILITY_MISSING" });
  });

  it("that its signal ends rejects with the results so far", async () => {
    const server = new Fake();
    const controller = new AbortController();
    server.fault = (method) => {
      if (method === "SendMessages" && server.requests.length === 2) {
        controller.abort(new DOMException("enough", "AbortError"));
        return { hang: true };
      }
      return undefined;
    };
    const sending = newClient(server).sendBatch(batch("room", 1, 600), { signal: controller.signal });
    const err = await rejected(sending, InterruptedError);
    expect([err.name, err.reason]).toEqual(["AbortError", controller.signal.reason]);
    expect(err.results?.[499]?.receipt?.seq).toBe(500);
    expect(err.results?.[500]?.error).toBeInstanceOf(InterruptedError);
  });

  it("is repeated if the response has too few results", async () => {
    const server = new Fake();
    const log = server.log("room");
    const client = newClient(server);
    let once = true;
    const send = log.send.bind(log);
    log.send = (from, req) => {
      if (once) {
        once = false;
        throw failure(Code.Internal, ErrorReason.INTERNAL);
      }
      return send(from, req);
    };
    const results = await client.sendBatch(batch("room", 1, 2));
    expect(results.map((r) => r.receipt?.seq)).toEqual([1, 2]);
  });
});

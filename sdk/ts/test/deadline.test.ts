import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Client, type ClientOptions, Code, fromStart, InterruptedError, type Outgoing } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { newClient, nextEvent, rejected, subscribe } from "./helper.js";

const away = { error: failure(Code.Unavailable, ErrorReason.STORE_UNAVAILABLE) };

/**
 * slow creates a client with the default waits, so that an hour of failures does not make a million
 * attempts.
 */
function slow(servers: Fake | Fake[], options: ClientOptions = {}): Client {
  return newClient(servers, { backoff: {}, ...options });
}

/**
 * ended returns the time in milliseconds after which a promise settled, and its error. It advances
 * the fake timers by most.
 */
async function ended(promise: Promise<unknown>, most = 32_000): Promise<{ after: number; error: unknown }> {
  const began = Date.now();
  const outcome = promise.then(
    () => ({ after: Date.now() - began, error: undefined }),
    (error: unknown) => ({ after: Date.now() - began, error }),
  );
  await vi.advanceTimersByTimeAsync(most);
  return await Promise.race([outcome, Promise.resolve({ after: Number.POSITIVE_INFINITY, error: "it goes on" })]);
}

async function drain(items: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of items) {
    // Only the end of the iteration matters.
  }
}

// Timers belong to the process, so tests of them have their own file.
describe.sequential("a call's time limit", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date", "performance"] });
  });

  afterEach(() => {
    vi.useRealTimers();
  });

  const calls = {
    send: (c: Client) => c.send("room", "hello"),
    sendBatch: (c: Client) => c.sendBatch([{ channelId: "room", content: "hello" }]),
    edit: (c: Client) => c.edit("room", "x", "y"),
    recall: (c: Client) => c.recall("room", "x"),
    get: (c: Client) => c.get("room", "x"),
    history: (c: Client) => drain(c.history("room")),
    channels: (c: Client) => drain(c.channels()),
    members: (c: Client) => drain(c.members("room")),
    createChannel: (c: Client) => c.createChannel("room"),
    addMembers: (c: Client) => c.addMembers("room", ["ann"]),
    removeMembers: (c: Client) => c.removeMembers("room", ["ann"]),
    markRead: (c: Client) => c.markRead("room", 1),
    serverInfo: (c: Client) => c.serverInfo(),
  };
  for (const [name, call] of Object.entries(calls)) {
    it(`is 30 s by default, and its error has the last failure: ${name}`, async () => {
      const server = new Fake();
      server.fault = () => away;
      const { after, error } = await ended(call(slow(server)));
      expect(after).toBeGreaterThanOrEqual(30_000);
      expect(after).toBeLessThan(30_500);
      expect(error).toBeInstanceOf(InterruptedError);
      expect(error).toMatchObject({
        name: "TimeoutError",
        reason: { name: "TimeoutError" },
        cause: { reason: "STORE_UNAVAILABLE" },
      });
      expect(String(error)).toContain("30000 ms; last failure: unavailable (STORE_UNAVAILABLE)");
    });
  }

  it("is the client's unless the call sets its own", async () => {
    const server = new Fake();
    server.fault = () => away;
    const client = slow(server, { callTimeout: 2_000 });
    expect((await ended(client.send("room", "hello"))).after).toBeLessThan(2_500);
    const own = await ended(client.send("room", "hello", { timeout: 60_000 }), 62_000);
    expect([own.after >= 60_000, own.after < 60_500]).toEqual([true, true]);
    expect((await ended(slow(server).get("room", "x", { timeout: 1_000 }))).after).toBeLessThan(1_500);
  });

  it("can be disabled, for the client and for a call", async () => {
    const server = new Fake();
    server.fault = () => away;
    const enough = new AbortController();
    const { signal } = enough;
    const both = Promise.allSettled([
      slow(server, { callTimeout: 0 }).send("room", "hello", { signal }),
      slow(server).send("room", "hello", { signal, timeout: 0 }),
    ]);
    expect((await ended(both, 3_600_000)).error).toBe("it goes on");
    enough.abort(new Error("enough"));
    await vi.advanceTimersByTimeAsync(1_000);
    expect((await both).map((r) => (r as PromiseRejectedResult).reason.message)).toEqual([
      expect.stringContaining("enough; last failure"),
      expect.stringContaining("enough; last failure"),
    ]);
  });

  it("applies in addition to a signal", async () => {
    const server = new Fake();
    server.fault = () => away;
    const { signal } = new AbortController();
    const { after, error } = await ended(slow(server).send("room", "hello", { signal }));
    expect([after < 30_500, (error as Error).name]).toEqual([true, "TimeoutError"]);
  });

  it("rejects with a plain TimeoutError if no attempt has ended", async () => {
    const server = new Fake();
    server.fault = () => ({ hang: true });
    const client = slow(server, { attemptTimeout: 60_000 });
    const { after, error } = await ended(client.send("room", "hello"));
    expect(after).toBeLessThan(30_500);
    expect(error).toBeInstanceOf(DOMException);
    expect(error).toMatchObject({ name: "TimeoutError", message: "the call did not finish within 30000 ms" });
  });

  it("that ends an attempt counts as a failure of the node", async () => {
    const [a, b] = [new Fake(), new Fake()];
    a.fault = () => ({ hang: true });
    const client = slow([a, b], { attemptTimeout: 60_000, random: () => 0.999 });
    await ended(client.send("room", "hello"));
    await client.send("room", "hello");
    expect([a.of("SendMessage").length, b.of("SendMessage").length]).toEqual([1, 1]);
  });

  it("applies to each page of a list", async () => {
    const server = new Fake();
    server.post("room", 4);
    const client = slow(server);
    const list = client.history("room", { pageSize: 1 });
    for (const seq of [4, 3, 2]) {
      expect((await list.next()).value?.seq).toBe(seq);
      await vi.advanceTimersByTimeAsync(25_000);
    }
    server.fault = () => away;
    const { after, error } = await ended(list.next());
    expect([after >= 30_000, after < 30_500]).toEqual([true, true]);
    expect(error).toBeInstanceOf(InterruptedError);
  });

  it("restarts whenever messages of a batch are stored", async () => {
    const server = new Fake();
    const messages: Outgoing[] = Array.from({ length: 1_500 }, (_, i) => ({ channelId: "room", content: `${i}` }));
    let began = Date.now();
    let part = 0;
    server.fault = (method) => {
      if (method !== "SendMessages" || Date.now() - began > 20_000) {
        if (method === "SendMessages") {
          began = Date.now();
          part++;
        }
        return undefined;
      }
      return away;
    };
    const stored = await ended(slow(server).sendBatch(messages), 120_000);
    expect([stored.error, part]).toEqual([undefined, 3]);
    expect(stored.after).toBeGreaterThan(60_000);

    const other = new Fake();
    other.fault = (method) => (method === "SendMessages" && other.requests.length > 1 ? away : undefined);
    const { error } = await ended(slow(other).sendBatch(messages));
    expect(error).toMatchObject({ name: "TimeoutError", cause: { reason: "STORE_UNAVAILABLE" } });
    const { results = [] } = error as InterruptedError;
    expect(results.filter((r) => r.receipt !== undefined).length).toBe(500);
    expect(results[1_499]?.error).toBeInstanceOf(InterruptedError);
  });

  it("that ends an attempt of a batch rejects with the previous failure", async () => {
    const server = new Fake();
    server.fault = () => (server.requests.length === 1 ? away : { hang: true });
    const client = slow(server, { attemptTimeout: 60_000 });
    const { error } = await ended(client.sendBatch([{ channelId: "room", content: "hello" }]));
    expect(error).toMatchObject({ name: "TimeoutError", cause: { reason: "STORE_UNAVAILABLE" } });
  });

  it("does not apply to a subscription", async () => {
    const server = new Fake();
    const client = slow(server, { callTimeout: 1_000 });
    const sub = subscribe(client, fromStart("room"));
    await nextEvent(sub, "channel_state");
    const next = sub.next();
    await vi.advanceTimersByTimeAsync(120_000);
    server.post("room");
    expect((await next).seq).toBe(1);
    server.down = true;
    server.endStreams();
    await vi.advanceTimersByTimeAsync(120_000);
    server.down = false;
    server.post("room");
    const later = sub.next();
    await vi.advanceTimersByTimeAsync(60_000);
    expect((await later).kind).toBe("channel_state");
    sub.close();
    await sub.done;
  });

  it("leaves no timer running", async () => {
    const server = new Fake();
    const client = slow(server);
    await client.send("room", "hello");
    await rejected(client.get("room", "nothing"), Error);
    expect(vi.getTimerCount()).toBe(0);
  });
});

import { Code, ConnectError } from "@connectrpc/connect";
import { beforeEach, describe, expect, test, vi } from "vitest";
import type { Clock } from "../../src/connection/clock";
import { answerLimit, Liveness, quietLimit } from "../../src/connection/liveness";

const streaming = { headers: { "content-type": "application/connect+proto" } };

/** Server answers calls at once, or never while it is frozen, and has one stream. */
class Server {
  frozen = false;
  unreachable = false;
  calls = 0;
  stream: ReadableStreamDefaultController<Uint8Array<ArrayBuffer>> | undefined;

  fetch = async (_: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    if (this.unreachable) throw new TypeError("Failed to fetch");
    if (init === streaming) {
      return new Response(
        new ReadableStream({
          start: (controller) => {
            this.stream = controller;
          },
        }),
      );
    }
    this.calls++;
    if (this.frozen) await new Promise(() => {});
    return new Response("answer");
  };
}

describe("liveness", () => {
  let server: Server;
  let hidden: boolean;
  let liveness: Liveness;

  const clock: Clock = {
    now: () => Date.now(),
    after: (ms, callback) => {
      const timer = setTimeout(callback, ms);
      return () => clearTimeout(timer);
    },
  };

  beforeEach(() => {
    vi.useFakeTimers();
    server = new Server();
    hidden = false;
    liveness = new Liveness({
      fetch: server.fetch,
      clock,
      probe: (fetch) => fetch("http://server/probe"),
      hidden: () => hidden,
    });
    return () => {
      liveness.close();
      vi.useRealTimers();
    };
  });

  /** open opens a stream. The returned function returns the error that ended it, if one did. */
  async function open(): Promise<() => unknown> {
    const response = await liveness.fetch("http://server/stream", streaming);
    let ended: unknown;
    const read = async () => {
      const reader = response.body?.getReader();
      for (;;) if ((await reader?.read())?.done !== false) return;
    };
    read().catch((error: unknown) => {
      ended = error;
    });
    return () => ended;
  }

  const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

  test("probes a quiet server, and a server that answers keeps its streams", async () => {
    const ended = await open();
    await pass(10 * quietLimit + 100);
    expect(server.calls).toBe(10);
    expect(ended()).toBeUndefined();
  });

  test("does not probe while frames arrive, or while the page is hidden", async () => {
    await open();
    for (let i = 0; i < 20; i++) {
      await pass(1_000);
      server.stream?.enqueue(new Uint8Array(1));
    }
    hidden = true;
    await pass(60_000);
    expect(server.calls).toBe(0);
    hidden = false;
    liveness.check();
    expect(server.calls).toBe(1);
  });

  test("ends the streams of a server that answers no probe, within 8 s", async () => {
    const ended = await open();
    server.frozen = true;
    await pass(quietLimit + answerLimit - 100);
    expect(ended()).toBeUndefined();
    await pass(200);
    expect(ended()).toMatchObject({ code: Code.DeadlineExceeded });
    expect(quietLimit + answerLimit).toBeLessThan(8_000);
  });

  test("ends the streams sooner if a call is unanswered, but not while frames arrive", async () => {
    const ended = await open();
    server.frozen = true;
    void liveness.fetch("http://server/send");
    for (let i = 0; i < 10; i++) {
      await pass(1_000);
      server.stream?.enqueue(new Uint8Array(1));
    }
    expect(ended()).toBeUndefined();
    void liveness.fetch("http://server/send");
    await pass(answerLimit + 100);
    expect(ended()).toBeInstanceOf(ConnectError);
  });

  test("probes at once after a failed call, and ends the streams if the probe fails too", async () => {
    const ended = await open();
    server.unreachable = true;
    await expect(liveness.fetch("http://server/send")).rejects.toThrow(TypeError);
    await pass(0);
    expect(ended()).toMatchObject({ code: Code.Unavailable });
  });

  test("ends the streams at once when the browser is offline", async () => {
    const ended = await open();
    liveness.offline();
    await pass(0);
    expect(ended()).toMatchObject({ code: Code.Unavailable });
  });

  test("a timer that is late because the machine slept ends nothing", async () => {
    const ended = await open();
    void liveness.fetch("http://server/send");
    await pass(0);
    server.frozen = true;
    void liveness.fetch("http://server/send");
    vi.setSystemTime(Date.now() + 3_600_000);
    await pass(answerLimit + 100);
    expect(ended()).toBeUndefined();
  });
});

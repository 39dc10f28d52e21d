import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, describe, expect, it } from "vitest";
import { Client, type ClientOptions, Code, fromStart, ParleyError } from "../src/index.js";
import { Fake } from "./fake.js";
import { eventually, nextEvent, rejected, States, wantEntries } from "./helper.js";

const nodes: Node[] = [];
afterAll(() => {
  for (const node of nodes) {
    node.kill();
    node.client.close();
  }
});

/** Node is a fake server behind a real socket, and a client of it. */
class Node {
  readonly fake = new Fake();
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  #client: Client | undefined;
  port = 0;
  /** If set, it handles each request instead of the fake server. */
  instead: ((res: ServerResponse) => void) | undefined;

  private constructor() {
    this.#server = createServer((req, res) => void this.#serve(req, res));
    this.#server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
  }

  static async start(options: ClientOptions = {}): Promise<Node> {
    const node = new Node();
    nodes.push(node);
    await node.listen();
    node.#client = new Client(`127.0.0.1:${node.port}`, {
      token: "tester",
      backoff: { base: 5, max: 50 },
      ...options,
    });
    return node;
  }

  get client(): Client {
    return this.#client as Client;
  }

  listen(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.listen(this.port, "127.0.0.1", () => {
        this.port = (this.#server.address() as AddressInfo).port;
        resolve();
      });
    });
  }

  cut(): void {
    for (const socket of this.#sockets) {
      socket.destroy();
    }
  }

  kill(): void {
    this.#server.close();
    this.cut();
  }

  async #serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (this.instead !== undefined) {
      this.instead(res);
      return;
    }
    const gone = new AbortController();
    res.on("close", () => gone.abort());
    const body = await req.toArray();
    try {
      const answer = await this.fake.fetch(`http://${req.headers.host}${req.url}`, {
        method: "POST",
        headers: req.headers as Record<string, string>,
        body: Buffer.concat(body),
        signal: gone.signal,
      });
      res.writeHead(answer.status, Object.fromEntries(answer.headers));
      for await (const chunk of answer.body ?? []) {
        res.write(chunk);
      }
      res.end();
    } catch {
      res.destroy();
    }
  }
}

for (const protocol of ["connect", "grpc-web"] as const) {
  describe(`a real socket, ${protocol}`, () => {
    it("delivers each event once although it is cut", async () => {
      const node = await Node.start({ protocol });
      const states = new States();
      node.fake.post("room", 3);
      const sub = node.client.subscribe(fromStart("room"), { onState: states.onState });
      await wantEntries(sub, "room", 1, 3);
      for (let i = 0; i < 3; i++) {
        node.cut();
        await node.client.send("room", `after cut ${i}`);
        await wantEntries(sub, "room", 4 + i, 4 + i);
      }
      expect(states.waits[0]?.error).toMatchObject({ code: Code.Unavailable, retryable: true, reason: "" });
      node.kill();
      await eventually(() => states.waits.length >= 6);
      node.fake.post("room", 2);
      await node.listen();
      await wantEntries(sub, "room", 7, 8);
      sub.close();
      await eventually(() => node.fake.streams.size === 0);
    });

    it("recovers after a stall in the middle of a response", async () => {
      const node = await Node.start({ protocol, attemptTimeout: 200 });
      const type = protocol === "connect" ? "application/proto" : "application/grpc-web+proto";
      let calls = 0;
      node.instead = (res) => {
        calls++;
        res.writeHead(200, { "content-type": type, "content-length": "1000" });
        res.write("half of it");
        if (calls === 2) {
          node.instead = undefined;
        }
      };
      const receipt = await node.client.send("room", "hello");
      expect([receipt.seq, calls]).toEqual([1, 2]);
    });
  });
}

describe("a real socket", () => {
  it("retries responses that are not from Parley", async () => {
    const node = await Node.start();
    let answer = (res: ServerResponse): void => {
      res.destroy();
    };
    const outcome = async () => {
      const enough = new AbortController();
      let calls = 0;
      node.instead = (res) => {
        calls++;
        if (calls === 3) {
          enough.abort();
        }
        answer(res);
      };
      const err = await rejected(node.client.send("room", "hello", { signal: enough.signal }), Error);
      const failure = (err instanceof ParleyError ? err : err.cause) as ParleyError;
      return { code: Code[failure.code], retried: calls > 1 };
    };
    expect(await outcome()).toEqual({ code: "Unavailable", retried: true });
    answer = (res) => res.writeHead(503).end("<html>bad gateway</html>");
    expect(await outcome()).toEqual({ code: "Unavailable", retried: true });
    answer = (res) => res.writeHead(200, { "content-type": "text/html" }).end("<html>welcome</html>");
    expect(await outcome()).toEqual({ code: "Unavailable", retried: true });
    answer = (res) => res.writeHead(200, { "content-type": "application/proto" }).end("\xff\xff");
    expect((await outcome()).retried).toBe(true);
    answer = (res) => res.writeHead(404).end("no such page");
    expect(await outcome()).toEqual({ code: "Unimplemented", retried: false });
    answer = (res) => res.writeHead(403, { "content-type": "application/json" }).end('{"code":"permission_denied"}');
    expect(await outcome()).toEqual({ code: "PermissionDenied", retried: false });
  });

  it("is closed with its subscription, also after a garbage collection", async () => {
    const node = await Node.start();
    const sub = node.client.subscribe(fromStart("room"));
    await nextEvent(sub, "channel_state");
    setFlagsFromString("--expose-gc");
    const gc = runInNewContext("gc") as () => void;
    for (let i = 0; i < 10; i++) {
      gc();
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    expect(node.fake.streams.size).toBe(1);
    sub.close();
    await eventually(() => node.fake.streams.size === 0);
  });
});

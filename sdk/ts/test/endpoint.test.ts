import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import { describe, expect, it } from "vitest";
import { parseAddresses } from "../src/address.js";
import { Endpoints, type Rpc } from "../src/endpoint.js";
import { Code, fromStart, ParleyError } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { eventually, newClient, nextEvent, rejected, States, subscribe, wantEntries } from "./helper.js";

/** Fleet creates endpoints with a clock that the test advances. */
class Fleet {
  at = 1_000_000;
  readonly endpoints: Endpoints;

  constructor(n: number, random: () => number = Math.random) {
    const addrs = Array.from({ length: n }, (_, i) => `node-${i}`);
    this.endpoints = new Endpoints(
      addrs,
      () => ({}) as Rpc,
      random,
      () => this.at,
    );
  }

  get node() {
    return this.endpoints.pick();
  }
}

const never = new AbortController().signal;

describe("endpoints", () => {
  it("are used evenly, and the clients of a failed node spread over the others", () => {
    const first = new Map<string, number>();
    const then = new Map<string, number>();
    for (let i = 0; i < 3_000; i++) {
      const { endpoints } = new Fleet(3);
      const node = endpoints.pick();
      first.set(node.addr, (first.get(node.addr) ?? 0) + 1);
      endpoints.fail(node);
      const path = `${node.addr} ${endpoints.pick().addr}`;
      then.set(path, (then.get(path) ?? 0) + 1);
    }
    expect([...first.values()].every((n) => n > 800 && n < 1_200)).toBe(true);
    expect(then.size).toBe(6);
    expect([...then.values()].every((n) => n > 350 && n < 650)).toBe(true);
  });

  it("keep a node until it fails, and do not return to it without a failure", () => {
    const fleet = new Fleet(3);
    const first = fleet.node;
    expect(Array.from({ length: 10 }, () => fleet.node)).toEqual(Array(10).fill(first));
    fleet.endpoints.fail(first);
    const second = fleet.node;
    expect(second).not.toBe(first);
    fleet.at += 60_000;
    expect(fleet.node).toBe(second);
  });

  it("avoid a node for longer after each failed attempt", () => {
    const fleet = new Fleet(1);
    const node = fleet.node;
    for (const ms of [5_000, 10_000, 20_000, 30_000, 30_000]) {
      fleet.endpoints.fail(node);
      fleet.endpoints.fail(node); // Failures of an avoided node do not add up.
      expect(node.avoidedUntil - fleet.at).toBe(ms);
      fleet.at = node.avoidedUntil;
    }
    const began = fleet.at;
    fleet.endpoints.fail(node);
    fleet.endpoints.markWorking(node, began); // It began before the failure, so it does not count.
    expect(node.avoidedUntil).toBeGreaterThan(fleet.at);
    fleet.endpoints.markWorking(node, began + 1);
    expect(node).toMatchObject({ failures: 0, avoidedUntil: Number.NEGATIVE_INFINITY });
  });

  it("choose the node with the oldest failure if all have failed", () => {
    const fleet = new Fleet(3);
    const order = [0, 1, 2].map(() => {
      const node = fleet.node;
      fleet.endpoints.fail(node);
      fleet.at += 10;
      return node;
    });
    expect(fleet.node).toBe(order[0]);
    expect(fleet.endpoints.hasOther(order[2] as never)).toBe(false);
    fleet.endpoints.fail(fleet.node);
    fleet.at += 10;
    expect(fleet.node).toBe(order[1]);
  });

  it("record success or failure according to the outcome", () => {
    const timedOut = AbortSignal.abort(new DOMException("", "TimeoutError"));
    const error = (code: Code, init = {}) => new ParleyError({ code, retryable: true, ...init });
    const cases: [string, AbortSignal, number, ParleyError | undefined, boolean][] = [
      ["an answer", never, 10, undefined, false],
      ["unavailable", never, 10, error(Code.Unavailable), true],
      ["internal", never, 10, error(Code.Internal), true],
      ["no sound answer", never, 10, error(Code.Unknown, { unanswered: true }), true],
      ["over the limit", never, 10, error(Code.ResourceExhausted, { reason: "RATE_LIMITED" }), false],
      ["a full node", never, 10, error(Code.ResourceExhausted, { reason: "NODE_FULL" }), true],
      ["a limit of the caller's", never, 10, error(Code.ResourceExhausted, { reason: "LIMIT_EXCEEDED" }), false],
      ["a final unavailable", never, 10, error(Code.Unavailable, { retryable: false }), false],
      ["a deadline", never, 5_000, error(Code.DeadlineExceeded), true],
      ["a short deadline", never, 900, error(Code.DeadlineExceeded), false],
      ["a cancelled call", AbortSignal.abort(), 9_000, error(Code.Unavailable), false],
      ["its caller's deadline", timedOut, 2_000, error(Code.Canceled), true],
      ["its caller's short deadline", timedOut, 500, error(Code.Canceled), false],
    ];
    for (const [name, signal, took, err, fails] of cases) {
      const fleet = new Fleet(2);
      const node = fleet.node;
      const began = fleet.at;
      fleet.at += took;
      fleet.endpoints.recordOutcome(signal, node, began, 5_000, err);
      expect(fleet.node !== node, name).toBe(fails);
    }
  });

  it("are parsed from addresses", () => {
    expect(parseAddresses("a:8080, http://b:8080/ ,a:8080,http://c/x/")).toEqual([
      "http://a:8080",
      "http://b:8080",
      "http://c/x",
    ]);
    expect(parseAddresses(["https://a", "https://b:1"])).toEqual(["https://a", "https://b:1"]);
    for (const bad of [
      "",
      "a,",
      "ftp://host",
      "http://",
      "http://host?x=1",
      "http://user@host",
      "http://ho st",
      "http://a,https://b",
      [],
    ]) {
      expect(() => parseAddresses(bad), String(bad)).toThrow(TypeError);
    }
  });
});

describe("a client of a fleet", () => {
  // Any wait would be longer than a test.
  const patient = { backoff: { base: 1e6, max: 1e6 } };

  it("retries calls at another node at once, with the same id", async () => {
    const [a, b] = [new Fake(), new Fake()];
    const client = newClient([a, b], patient);
    await client.send("room", "one");
    const [first, other] = a.requests.length > 0 ? [a, b] : [b, a];
    first.faults(9, "SendMessage", { drop: true });
    const { clientMsgId } = await client.send("room", "two");
    expect(first.of("SendMessage").at(-1)).toMatchObject({ clientMsgId });
    expect(other.of("SendMessage")).toMatchObject([{ clientMsgId }]);
    await client.send("room", "three");
    expect(other.of("SendMessage").length).toBe(2);
  });

  it("resumes streams at another node at once, from their positions", async () => {
    const servers = [new Fake(), new Fake()];
    for (const server of servers) {
      server.post("room", 3);
    }
    const states = new States();
    const sub = subscribe(newClient(servers, patient), fromStart("room"), states);
    await wantEntries(sub, "room", 1, 3);
    const first = servers.find((s) => s.streams.size > 0) as Fake;
    const other = servers.find((s) => s !== first) as Fake;
    other.post("room", 2);
    first.down = true;
    first.endStreams(failure(Code.Unavailable, 106));
    await wantEntries(sub, "room", 4, 5);
    expect(states.waits.map((c) => c.wait)).toEqual([0]);
    expect(states.all.at(-1)?.addr).toBe(`http://node-${servers.indexOf(other)}`);
    // A change goes to the client's current node.
    await sub.add(fromStart("more"));
    expect(other.of("UpdateSubscription").length).toBe(1);
  });

  it("moves streams and calls of a full node to another node at once", async () => {
    const servers = [new Fake(), new Fake()];
    const full = { error: failure(Code.ResourceExhausted, ErrorReason.NODE_FULL, { limit: 10n }) };
    for (const server of servers) {
      server.post("room", 1);
    }
    const client = newClient(servers, patient);
    await client.send("room", "where is it?");
    const first = servers.find((s) => s.requests.length > 0) as Fake;
    const other = servers.find((s) => s !== first) as Fake;
    first.fault = (method) => (method === "Subscribe" ? full : undefined);
    const states = new States();
    const sub = subscribe(client, fromStart("room"), states);
    await wantEntries(sub, "room", 1, 1);
    expect([first.of("Subscribe").length, other.streams.size]).toEqual([1, 1]);
    expect(states.waits).toMatchObject([{ wait: 0, error: { reason: "NODE_FULL", retryable: true, limit: 10 } }]);
    await client.send("room", "and the calls go along");
    expect(other.of("SendMessage").length).toBe(1);
  });

  it("waits if the only node is full", async () => {
    const server = new Fake();
    const states = new States();
    server.faults(2, "Subscribe", { error: failure(Code.ResourceExhausted, ErrorReason.NODE_FULL) });
    const sub = subscribe(newClient(server), fromStart("room"), states);
    await nextEvent(sub, "channel_state");
    expect(states.waits.length).toBe(2);
    expect(states.waits[0]?.wait).toBeGreaterThan(0);
  });

  it("ends a subscription that has too many channels", async () => {
    const servers = [new Fake(), new Fake()];
    for (const server of servers) {
      server.faults(9, "Subscribe", { error: failure(Code.ResourceExhausted, ErrorReason.LIMIT_EXCEEDED) });
    }
    const err = await rejected(subscribe(newClient(servers, patient), fromStart("room")).next(), ParleyError);
    expect(err.reason).toBe("LIMIT_EXCEEDED");
    expect(servers.flatMap((s) => s.of("Subscribe")).length).toBe(1);
  });

  it("stays at the node after SLOW_CONSUMER", async () => {
    const servers = [new Fake(), new Fake()];
    const sub = subscribe(newClient(servers), fromStart("room"));
    await nextEvent(sub, "channel_state");
    const first = servers.find((s) => s.streams.size > 0) as Fake;
    first.endStreams(failure(Code.ResourceExhausted, 104));
    await eventually(() => first.of("Subscribe").length === 2);
  });
});

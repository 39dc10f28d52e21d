import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/subscription_pb.js";
import { describe, expect, it } from "vitest";
import { after, Code, fromStart, live, ParleyError, type Subscription } from "../src/index.js";
import { Fake, type Fault, failure, methodOf } from "./fake.js";
import { eventually, newClient, nextEvent, rejected, subscribe, wantEntries, wantQuiet } from "./helper.js";

/** hooked returns a fetch that calls a hook before each request of one method. */
function hooked(server: Fake, method: string, hook: () => Promise<void>): typeof fetch {
  return async (input, init) => {
    if (methodOf(String(input)) === method) {
      await hook();
    }
    return server.fetch(input, init);
  };
}

describe("add and remove", () => {
  it("change the current stream and the next one", async () => {
    const server = new Fake();
    for (const id of ["a", "b", "c"]) {
      server.post(id, 3);
    }
    const sub = subscribe(newClient(server), fromStart("a"));
    await wantEntries(sub, "a", 1, 3);
    await sub.add([fromStart("b"), live("a")]);
    await wantEntries(sub, "b", 1, 3);
    server.endStreams();
    server.post("b");
    await wantEntries(sub, "b", 4, 4);
    await sub.remove(["a", "unknown"]);
    server.post("a", 2);
    await wantQuiet(sub);
    expect(sub.position("a")).toBeUndefined();
    await sub.add(after({ channelId: "a", seq: 4 }));
    await wantEntries(sub, "a", 5, 5);
    server.down = true;
    server.endStreams();
    await eventually(() => sub.state === "waiting");
    await sub.add(fromStart("c"));
    await sub.remove("b");
    server.down = false;
    await wantEntries(sub, "c", 1, 3);
    server.post("b");
    server.post("a");
    await wantEntries(sub, "a", 6, 6);
    await wantQuiet(sub);
    const last = server.of<pb.SubscribeRequest>("Subscribe").at(-1);
    expect(last?.channels.map((p) => p.channelId)).toEqual(["a", "c"]);
  });

  it("drop queued events of a removed channel", async () => {
    const server = new Fake();
    server.post("a", 2);
    const sub = subscribe(newClient(server), fromStart("a"));
    await wantEntries(sub, "a", 1, 1);
    await sub.remove("a");
    await wantQuiet(sub);
  });

  const unsure: Record<string, Fault> = {
    lost: { drop: true },
    "answer lost": { drop: true, applied: true },
    "no stream": { error: failure(Code.NotFound, ErrorReason.STREAM_NOT_FOUND) },
  };
  for (const [name, fault] of Object.entries(unsure)) {
    it(`open a new stream if the outcome is unknown: ${name}`, async () => {
      const server = new Fake();
      server.post("a", 2);
      const sub = subscribe(newClient(server), live("base"));
      await nextEvent(sub, "channel_state");
      server.faults(1, "UpdateSubscription", fault);
      await sub.add(fromStart("a"));
      await wantEntries(sub, "a", 1, 2);
      server.post("a");
      await wantEntries(sub, "a", 3, 3);
      await wantQuiet(sub);
    });
  }

  it("do not change the subscription if they are refused", async () => {
    const server = new Fake();
    const sub = subscribe(newClient(server), fromStart("a"));
    await nextEvent(sub, "channel_state");
    server.faults(1, "UpdateSubscription", { error: failure(Code.PermissionDenied, ErrorReason.CAPABILITY_MISSING) });
    expect(await rejected(sub.add(live("secret")), ParleyError)).toMatchObject({ reason: "CAPABILITY_MISSING" });
    server.endStreams();
    server.post("a");
    await wantEntries(sub, "a", 1, 1);
    expect(server.of<pb.SubscribeRequest>("Subscribe").at(-1)?.channels.length).toBe(1);
  });

  it("do not end a stream that opens while they are refused", async () => {
    const server = new Fake();
    const refusal = { error: failure(Code.PermissionDenied, ErrorReason.CAPABILITY_MISSING) };
    server.fault = (method, message) =>
      method === "UpdateSubscription" ||
      (method === "Subscribe" && (message as pb.SubscribeRequest).channels.length > 1)
        ? refusal
        : undefined;
    const fetch = hooked(server, "UpdateSubscription", async () => {
      server.endStreams();
      await eventually(() => server.of("Subscribe").length >= 2);
    });
    const sub = subscribe(newClient(server, { fetch }), fromStart("a"));
    await nextEvent(sub, "channel_state");
    expect(await rejected(sub.add(live("secret")), ParleyError)).toMatchObject({ reason: "CAPABILITY_MISSING" });
    server.post("a");
    await wantEntries(sub, "a", 1, 1);
  });

  it("are not sent between two streams, but are in the next stream's request", async () => {
    const server = new Fake();
    server.post("b");
    const changes: Promise<void>[] = [];
    const client = newClient(server, { random: () => 0.5 });
    const sub = client.subscribe([live("a"), live("c")], {
      onState: ({ state }) => {
        if (state === "waiting" && changes.length === 0) {
          changes.push(sub.add(fromStart("b")), sub.remove("a"));
        }
      },
    });
    await nextEvent(sub, "channel_state");
    await nextEvent(sub, "channel_state");
    server.endStreams();
    await wantEntries(sub, "b", 1, 1);
    await Promise.all(changes);
    expect(server.of("UpdateSubscription")).toEqual([]);
    const streams = server.of<pb.SubscribeRequest>("Subscribe");
    expect(streams.map((r) => r.channels.map((p) => p.channelId))).toEqual([
      ["a", "c"],
      ["c", "b"],
    ]);
  });

  it("are sent after the first frame if they were made before it", async () => {
    const server = new Fake();
    for (const id of ["a", "b", "c"]) {
      server.post(id);
    }
    let changed = false;
    const fetch = hooked(server, "Subscribe", async () => {
      if (!changed) {
        changed = true;
        await sub.add(fromStart("b"));
        await sub.remove("a");
        await sub.remove("c");
        await sub.add(fromStart("c"));
      }
    });
    const sub: Subscription = subscribe(newClient(server, { fetch }), [fromStart("a"), live("c")]);
    const got = [await nextEvent(sub), await nextEvent(sub)].map((e) => `${e.channelId} ${e.seq}`);
    expect(got.sort()).toEqual(["b 1", "c 1"]);
    server.post("a");
    await wantQuiet(sub);
    const updates = server.of<pb.UpdateSubscriptionRequest>("UpdateSubscription");
    expect(updates.map((u) => [u.add.map((p) => p.channelId), u.remove])).toEqual([[["b", "c"], ["a"]]]);
  });

  it("send a removal alone that was made before the first frame", async () => {
    const server = new Fake();
    const fetch = hooked(server, "Subscribe", () => sub.remove("a"));
    const sub: Subscription = subscribe(newClient(server, { fetch }), [live("a"), live("b")]);
    await eventually(() => server.of("UpdateSubscription").length === 1);
    expect(server.of<pb.UpdateSubscriptionRequest>("UpdateSubscription")[0]?.remove).toEqual(["a"]);
  });

  it("reach the server in order", async () => {
    const server = new Fake();
    const fetch = hooked(server, "UpdateSubscription", () => new Promise((r) => setTimeout(r, 10 * Math.random())));
    const sub = subscribe(newClient(server, { fetch }), live("base"));
    await nextEvent(sub, "channel_state");
    const given = new AbortController();
    const changes = ["a", "b", "c", "d"].flatMap((id) => [sub.add(live(id)), sub.remove(id)]);
    const givenUp = sub.add(live("e"), given.signal);
    given.abort("given up");
    await expect(givenUp).rejects.toBe("given up");
    await Promise.all([...changes, sub.add(live("f"))]);
    const order = server.of<pb.UpdateSubscriptionRequest>("UpdateSubscription");
    expect(order.map((u) => u.add[0]?.channelId ?? `-${u.remove[0]}`)).toEqual("a -a b -b c -c d -d f".split(" "));
  });

  it("lose and repeat no event while streams end and reopen", async () => {
    const server = new Fake();
    const sub = subscribe(newClient(server), []);
    let over = false;
    const breaker = (async () => {
      while (!over) {
        await new Promise((resolve) => setTimeout(resolve, 8 * Math.random()));
        server.endStreams();
      }
    })();
    const want = new Set<string>();
    const changer = async (n: number) => {
      for (let i = 0; i < 20; i++) {
        const id = `c${n}-${i}`;
        await sub.add(fromStart(id));
        if (i % 2 === 0) {
          await sub.remove(id);
        } else {
          want.add(id);
        }
      }
    };
    await Promise.all([changer(0), changer(1), changer(2)]);
    over = true;
    await breaker;
    for (let n = 0; n < 3; n++) {
      for (let i = 0; i < 20; i++) {
        server.post(`c${n}-${i}`);
      }
    }
    while (want.size > 0) {
      const { channelId } = await nextEvent(sub);
      expect(want.delete(channelId), channelId).toBe(true);
    }
    await wantQuiet(sub);
  });
});

describe("renewToken", () => {
  it("continues on the same stream with the next token of the source", async () => {
    const server = new Fake();
    let minted = 0;
    const sub = subscribe(newClient(server, { tokenSource: () => `token-${++minted}` }), fromStart("a"));
    await nextEvent(sub, "channel_state");
    server.faults(1, "UpdateSubscription", { error: failure(Code.PermissionDenied, ErrorReason.CAPABILITY_MISSING) });
    expect(await rejected(sub.renewToken(), ParleyError)).toMatchObject({ reason: "CAPABILITY_MISSING" });
    await sub.renewToken();
    server.post("a");
    await wantEntries(sub, "a", 1, 1);
    const updates = server.requests.filter(({ method }) => method === "UpdateSubscription");
    expect(updates.map(({ token }) => token)).toEqual(["token-2", "token-3"]);
    expect(server.of<pb.UpdateSubscriptionRequest>("UpdateSubscription").every((r) => r.renewToken)).toBe(true);
    expect(server.of("Subscribe").length).toBe(1);
  });

  it("changes nothing if the source fails", async () => {
    const server = new Fake();
    let fails = false;
    const tokenSource = () => {
      if (fails) {
        throw new Error("away");
      }
      return "token-1";
    };
    const client = newClient(server, { tokenSource });
    const sub = subscribe(client, fromStart("a"));
    await nextEvent(sub, "channel_state");
    fails = true;
    await expect(sub.renewToken()).rejects.toThrow("away");
    await client.send("a", "hello");
    await wantEntries(sub, "a", 1, 1);
    expect(server.of("Subscribe").length).toBe(1);
    expect(server.of("UpdateSubscription")).toEqual([]);
  });

  it("does not let a stream go live that is opening with the token before", async () => {
    const server = new Fake();
    let minted = 0;
    let renewed: Promise<void> | undefined;
    let sub: Subscription | undefined;
    const fetch = hooked(server, "Subscribe", async () => {
      renewed ??= sub?.renewToken();
      await renewed;
    });
    sub = subscribe(newClient(server, { tokenSource: () => `token-${++minted}`, fetch }), fromStart("a"));
    server.post("a");
    await wantEntries(sub, "a", 1, 1);
    expect(server.requests.filter(({ method }) => method === "Subscribe").at(-1)?.token).toBe("token-2");
  });

  it("opens a stream with the new token if the outcome is unknown", async () => {
    const server = new Fake();
    let minted = 0;
    const sub = subscribe(newClient(server, { tokenSource: () => `token-${++minted}` }), fromStart("a"));
    await nextEvent(sub, "channel_state");
    server.faults(1, "UpdateSubscription", { drop: true });
    await sub.renewToken();
    server.post("a");
    await wantEntries(sub, "a", 1, 1);
    expect(server.requests.filter(({ method }) => method === "Subscribe").map(({ token }) => token)).toEqual([
      "token-1",
      "token-2",
    ]);
  });
});

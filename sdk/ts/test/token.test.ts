import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/message_pb.js";
import { describe, expect, it } from "vitest";
import { Code, live, ParleyError } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { newClient, rejected, States, subscribe } from "./helper.js";

describe("tokens", () => {
  it("are replaced once for concurrent calls", async () => {
    const server = new Fake();
    server.tokens = new Set(["token-1"]);
    let minted = 0;
    const client = newClient(server, {
      tokenSource: async () => {
        const token = `token-${++minted}`;
        await new Promise((resolve) => setTimeout(resolve, 20));
        return token;
      },
    });
    await client.send("room", "one");
    server.tokens = new Set(["token-2"]);
    await Promise.all(Array.from({ length: 20 }, (_, i) => client.send("room", `more ${i}`)));
    expect(minted).toBe(2);
    expect(server.log("room").head).toBe(21);
  });

  it("end the call with a final error when they expire without a source", async () => {
    const server = new Fake();
    server.tokens = new Set(["another"]);
    const err = await rejected(newClient(server).send("room", "hello"), ParleyError);
    expect(err.reason).toBe("TOKEN_EXPIRED");
    expect(server.requests.length).toBe(1);
  });

  it("that are always refused are not replaced forever", async () => {
    const server = new Fake();
    const error = failure(Code.Unauthenticated, ErrorReason.TOKEN_INVALID);
    server.faults(1e9, "SendMessage", { error });
    let minted = 0;
    const client = newClient(server, { tokenSource: () => `token-${++minted}` });
    expect(await rejected(client.send("room", "hello"), ParleyError)).toMatchObject({ reason: "TOKEN_INVALID" });
    expect([server.requests.length, minted]).toEqual([2, 2]);
  });

  it("that expire repeatedly make a call wait between attempts", async () => {
    const server = new Fake();
    server.faults(4, "SendMessage", { error: failure(Code.Unauthenticated, ErrorReason.TOKEN_EXPIRED) });
    let minted = 0;
    const waits: unknown[] = [];
    const client = newClient(server, {
      tokenSource: () => `token-${++minted}`,
      random: () => 0.5,
      log: (_level, _message, { wait }) => waits.push(wait),
    });
    expect(await client.send("room", "hello")).toMatchObject({ seq: 1, duplicate: false });
    // Each attempt is repeated once at once with a new token.
    expect([server.requests.length, minted]).toEqual([5, 5]);
    expect(waits).toEqual([2.5, 5]);
    const ids = server.of<pb.SendMessageRequest>("SendMessage").map((r) => r.clientMsgId);
    expect(new Set(ids).size).toBe(1);
  });

  it("that expire repeatedly make a stream wait between attempts", async () => {
    const server = new Fake();
    const states = new States();
    server.faults(4, "Subscribe", { error: failure(Code.Unauthenticated, ErrorReason.TOKEN_EXPIRED) });
    let minted = 0;
    const client = newClient(server, { tokenSource: () => `token-${++minted}`, random: () => 0.5 });
    await subscribe(client, live("room"), states).next();
    // The first repeat is immediate, with the new token. Later ones wait as after any failure.
    expect(states.waits.map((c) => c.wait)).toEqual([0, 2.5, 5, 10]);
    expect(minted).toBe(5);
  });

  it("are requested again after a source's error, unless it is final", async () => {
    const server = new Fake();
    let calls = 0;
    const passing = newClient(server, {
      tokenSource: () => {
        if (++calls < 4) {
          throw new Error("issuer is away");
        }
        return "token";
      },
    });
    await passing.send("room", "hello");
    expect(calls).toBe(4);
    const final = newClient(server, {
      tokenSource: async () => {
        throw new ParleyError({ reason: "TOKEN_INVALID", message: "signed out" });
      },
    });
    expect(await rejected(final.send("room", "hello"), ParleyError)).toMatchObject({
      code: Code.Unauthenticated,
      reason: "TOKEN_INVALID",
      retryable: false,
    });
    expect(await rejected(subscribe(final, live("room")).next(), ParleyError)).toMatchObject({
      reason: "TOKEN_INVALID",
    });
  });

  it("that a header cannot carry are a final error", async () => {
    const server = new Fake();
    for (const options of [{ token: "two\nlines" }, { tokenSource: () => "\u{1f600}" }]) {
      const err = await rejected(newClient(server, options).send("room", "hello"), ParleyError);
      expect(err).toMatchObject({ code: Code.Unauthenticated, reason: "TOKEN_INVALID", retryable: false });
    }
    expect(server.requests).toEqual([]);
  });

  it("are fetched even if the first caller aborts", async () => {
    const server = new Fake();
    let give = (_: string) => {};
    let calls = 0;
    const tokenSource = () => {
      calls++;
      return new Promise<string>((resolve) => {
        give = resolve;
      });
    };
    const client = newClient(server, { tokenSource });
    const controller = new AbortController();
    const first = client.send("room", "one", { signal: controller.signal });
    const second = client.send("room", "two");
    controller.abort("given up");
    await expect(first).rejects.toBe("given up");
    give("token");
    await second;
    expect(calls).toBe(1);
  });
});

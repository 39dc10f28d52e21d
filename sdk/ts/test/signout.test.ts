import { Code } from "@connectrpc/connect";
import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import { describe, expect, it } from "vitest";
import { live } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { newClient, nextEvent, States, subscribe } from "./helper.js";

const revoked = { reason: "TOKEN_REVOKED", retryable: false };

/** Returns a client whose source has another token for each call, and the number of its calls. */
function refreshable(server: Fake) {
  const source = { calls: 0 };
  const client = newClient(server, { tokenSource: () => `ann-${++source.calls}` });
  return { client, source };
}

describe("signOut", () => {
  it("revokes the token, which calls then are refused with", async () => {
    const server = new Fake();
    const client = newClient(server);
    await client.signOut();
    await expect(client.getPresence(["ann"])).rejects.toMatchObject(revoked);
  });

  it("succeeds although the first answer was lost", async () => {
    const server = new Fake();
    server.faults(1, "SignOut", { applied: true, error: failure(Code.Unavailable, ErrorReason.OUTCOME_UNKNOWN) });
    const { client, source } = refreshable(server);
    await client.signOut();
    expect(server.requests.map(({ method, token }) => [method, token])).toEqual([
      ["SignOut", "ann-1"],
      ["SignOut", "ann-1"],
    ]);
    expect(source.calls).toBe(1);
  });

  it("keeps the token while nobody can tell whether it was revoked", async () => {
    const server = new Fake();
    server.faults(2, "GetPresence", { error: failure(Code.Unavailable, ErrorReason.REVOCATION_UNKNOWN) });
    const { client, source } = refreshable(server);
    expect(await client.getPresence(["ann"])).toHaveLength(1);
    expect(source.calls).toBe(1);
  });
});

// The source has a token that the server would accept. It is the user's decision to sign in again.
describe("a revoked token", () => {
  it("is not replaced by the source for a call", async () => {
    const server = new Fake();
    const { client, source } = refreshable(server);
    await client.send("room", "hello");
    server.revoke("ann-1");
    await expect(client.send("room", "late")).rejects.toMatchObject(revoked);
    await expect(client.send("room", "later")).rejects.toMatchObject(revoked);
    expect(server.of("SendMessage")).toHaveLength(3);
    expect(source.calls).toBe(1);
  });

  it("ends the streams of the client, and is not replaced for a new one", async () => {
    const server = new Fake();
    const { client, source } = refreshable(server);
    const states = new States();
    const sub = subscribe(client, live("room"), states);
    await nextEvent(sub, "channel_state");
    const alone = client.presence({ platform: "WEB", deviceId: "tab" });
    await expect.poll(() => alone.state).toBe("live");
    const streams = server.of("Subscribe").length;
    server.revoke("ann-1");
    await expect(nextEvent(sub)).rejects.toMatchObject(revoked);
    await expect(alone.next()).rejects.toMatchObject(revoked);
    expect(states.waits).toEqual([]);
    expect(states.names.at(-1)).toBe("ended");
    expect(server.of("Subscribe")).toHaveLength(streams);
    expect(server.of("Connect")).toHaveLength(0);
    await expect(subscribe(client, live("room")).next()).rejects.toMatchObject(revoked);
    await expect(client.presence({ platform: "WEB", deviceId: "tab" }).next()).rejects.toMatchObject(revoked);
    expect(source.calls).toBe(1);
  });
});

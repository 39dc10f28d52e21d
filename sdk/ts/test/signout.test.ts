import { Code } from "@connectrpc/connect";
import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import { describe, expect, it } from "vitest";
import { Fake, failure } from "./fake.js";
import { newClient } from "./helper.js";

describe("signOut", () => {
  it("revokes the token, which calls then are refused with", async () => {
    const server = new Fake();
    const client = newClient(server);
    await client.signOut();
    await expect(client.getPresence(["ann"])).rejects.toMatchObject({ reason: "TOKEN_REVOKED", retryable: false });
  });

  it("succeeds although the first answer was lost", async () => {
    const server = new Fake();
    server.faults(1, "SignOut", { applied: true, error: failure(Code.Unavailable, ErrorReason.OUTCOME_UNKNOWN) });
    await newClient(server).signOut();
    expect(server.of("SignOut")).toHaveLength(2);
    expect(server.revoked).toBe(true);
  });

  it("keeps the token while nobody can tell whether it was revoked", async () => {
    const server = new Fake();
    server.faults(2, "GetPresence", { error: failure(Code.Unavailable, ErrorReason.REVOCATION_UNKNOWN) });
    expect(await newClient(server).getPresence(["ann"])).toHaveLength(1);
  });
});

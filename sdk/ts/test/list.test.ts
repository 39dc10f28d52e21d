import {
  type AddMembersRequest,
  type CreateChannelRequest,
  type DeleteChannelRequest,
  MemberRole,
  type RemoveMembersRequest,
  type UpdateChannelRequest,
} from "@parleyhq/api/parley/v1/channel_pb.js";
import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/message_pb.js";
import { describe, expect, it } from "vitest";
import { after, Code, type Message, ParleyError } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { newClient, nextEvent, rejected, subscribe } from "./helper.js";

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) {
    list.push(item);
  }
  return list;
}

async function seqs(items: AsyncIterable<Message>): Promise<number[]> {
  return (await all(items)).map((m) => m.seq);
}

describe("history", () => {
  it("loads page by page, in both directions", async () => {
    const server = new Fake();
    server.post("room", 7);
    const client = newClient(server);
    expect(await seqs(client.history("room", { pageSize: 3 }))).toEqual([7, 6, 5, 4, 3, 2, 1]);
    expect(server.of("ListMessages").length).toBe(3);
    expect(await seqs(client.history("room", { afterSeq: 0, limit: 4 }))).toEqual([1, 2, 3, 4]);
    expect(await seqs(client.history("room", { afterSeq: 2, beforeSeq: 5 }))).toEqual([3, 4]);
    expect(await seqs(client.history("room", { beforeSeq: 3 }))).toEqual([2, 1]);
    const requests = server.of<pb.ListMessagesRequest>("ListMessages");
    expect(requests.slice(3).map((r) => r.pageSize)).toEqual([4, 0, 0]);
    for await (const m of client.history("room", { pageSize: 1 })) {
      expect(m.seq).toBe(7);
      break;
    }
    expect(server.of("ListMessages").length).toBe(7);
    expect(await rejected(all(client.history("\ud800")), ParleyError)).toMatchObject({ field: "channel_id" });
    expect(await rejected(all(client.history("room", { afterSeq: 0.5 })), ParleyError)).toMatchObject({
      field: "after_seq",
    });
  });

  it("requests the highest seq that the client has seen, on every page", async () => {
    const server = new Fake();
    server.post("room", 4);
    const client = newClient(server);
    await client.send("room", "hello");
    const list = client.history("room", { pageSize: 2 });
    await list.next();
    await client.send("room", "more");
    await seqs(list);
    const told = server.of<pb.ListMessagesRequest>("ListMessages").map((r) => Number(r.minSeq));
    expect(told).toEqual([5, 5, 5]);
  });

  it("keeps the highest seq that the client has seen until the log loses entries", async () => {
    const server = new Fake();
    const client = newClient(server);
    const { msgId } = await client.send("room", "one");
    for (const content of ["two", "three", "four"]) {
      await client.send("room", content);
    }
    await client.get("room", msgId);
    const minSeq = async () => {
      await seqs(client.history("room"));
      return server.of<pb.ListMessagesRequest>("ListMessages").at(-1)?.minSeq;
    };
    expect(await minSeq()).toBe(4n);
    server.log("room").entries.length = 2;
    const sub = subscribe(client, after({ channelId: "room", seq: 4, epoch: "epoch-1" }));
    expect(await nextEvent(sub)).toMatchObject({ kind: "gap", gap: { reason: "AHEAD_OF_LOG" } });
    expect(await minSeq()).toBe(2n);
  });

  it("forgets seqs beyond the end of a restored log", async () => {
    const server = new Fake();
    const client = newClient(server);
    await client.send("room", "one");
    await client.send("room", "two");
    server.log("room").entries.length = 1;
    expect(await rejected(seqs(client.history("room")), ParleyError)).toMatchObject({
      reason: "POSITION_OUT_OF_RANGE",
    });
    server.log("room").epoch = "epoch-2";
    expect(await seqs(client.history("room"))).toEqual([1]);
    await seqs(client.history("room"));
    expect(server.of<pb.ListMessagesRequest>("ListMessages").at(-1)?.minSeq).toBe(1n);
  });

  it("ends with RESYNC and with final errors", async () => {
    const server = new Fake();
    server.post("room", 4);
    const list = newClient(server).history("room", { pageSize: 2 });
    await list.next();
    await list.next();
    server.faults(9, "ListMessages", { error: failure(Code.Aborted, ErrorReason.RESYNC) });
    expect(await rejected(list.next(), ParleyError)).toMatchObject({ reason: "RESYNC" });
    expect(await list.next()).toEqual({ done: true, value: undefined });
  });
});

describe("channels", () => {
  it("are listed page by page", async () => {
    const server = new Fake();
    for (const id of ["a", "b", "c"]) {
      server.post(id, 2);
    }
    const client = newClient(server);
    const mine = await all(client.channels({ pageSize: 2 }));
    expect(mine.map((c) => [c.channel.channelId, c.channel.headSeq])).toEqual([
      ["a", 2],
      ["b", 2],
      ["c", 2],
    ]);
    await all(client.history("b"));
    expect(server.of<pb.ListMessagesRequest>("ListMessages")[0]?.minSeq).toBe(2n);
    expect(mine[0]?.channel).toEqual({
      channelId: "a",
      membersOnly: false,
      createdBy: "",
      createTime: undefined,
      headSeq: 2,
      count: 2,
      oldestSeq: 1,
      expiredCount: 0,
      epoch: "epoch-1",
      etag: "etag-1",
    });
  });

  it("are created once for one idempotency key", async () => {
    const server = new Fake();
    const client = newClient(server);
    server.faults(2, "CreateChannel", { drop: true, applied: true });
    expect(await client.createChannel("a", { membersOnly: true, members: ["bob"] })).toMatchObject({
      channelId: "a",
      createdBy: "tester",
      membersOnly: true,
      epoch: "epoch-1",
      oldestSeq: 1,
      duplicate: true,
    });
    const keys = server.of<CreateChannelRequest>("CreateChannel").map((r) => r.idempotencyKey);
    expect(keys).toEqual(Array(3).fill(keys[0]));
    expect(keys[0]).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7/);
    expect(await rejected(client.createChannel("a"), ParleyError)).toMatchObject({ reason: "CHANNEL_EXISTS" });

    expect(await client.createChannel("b", { idempotencyKey: "mine" })).toMatchObject({ duplicate: false });
    expect(await client.createChannel("b", { idempotencyKey: "mine" })).toMatchObject({ duplicate: true });
    expect(server.of<CreateChannelRequest>("CreateChannel").at(-1)?.idempotencyKey).toBe("mine");
    const broken = client.createChannel("c", { idempotencyKey: "\ud800" });
    expect(await rejected(broken, ParleyError)).toMatchObject({ field: "idempotency_key" });
  });

  it("have a retention", async () => {
    const server = new Fake();
    const client = newClient(server);
    const week = { maxAge: 604_800_000, maxMessages: 1_000, maxBytes: 0 };
    expect(await rejected(client.channel("room"), ParleyError)).toMatchObject({ reason: "CHANNEL_NOT_FOUND" });
    expect(await client.createChannel("room", { retention: week })).toMatchObject({ retention: week });
    expect(await client.channel("room")).toMatchObject({ channelId: "room", retention: week });
    server.faults(1, "UpdateChannel", { drop: true, applied: true });
    expect((await client.setRetention("room", {}, { etag: "etag-1" })).retention).toEqual({
      maxAge: 0,
      maxMessages: 0,
      maxBytes: 0,
    });
    expect((await client.setRetention("room", undefined)).retention).toBeUndefined();
    expect(server.of<UpdateChannelRequest>("UpdateChannel").map((r) => r.updateMask?.paths)).toEqual(
      Array(3).fill(["retention"]),
    );
    expect(await rejected(client.setRetention("room", week, { etag: "old" }), ParleyError)).toMatchObject({
      reason: "ETAG_MISMATCH",
    });
    expect(await rejected(client.setRetention("room", { maxBytes: 0.5 }), ParleyError)).toMatchObject({
      field: "retention.max_bytes",
    });
  });

  it("are closed and opened", async () => {
    const server = new Fake();
    const client = newClient(server);
    await client.createChannel("room");
    server.faults(1, "UpdateChannel", { drop: true, applied: true });
    expect(await client.setMembersOnly("room", true, { etag: "etag-1" })).toMatchObject({ membersOnly: true });
    expect(await client.setMembersOnly("room", false)).toMatchObject({ membersOnly: false });
    expect(server.of<UpdateChannelRequest>("UpdateChannel").map((r) => [r.membersOnly, r.updateMask?.paths])).toEqual([
      [true, ["members_only"]],
      [true, ["members_only"]],
      [false, ["members_only"]],
    ]);
    expect(await rejected(client.setMembersOnly("room", true, { etag: "old" }), ParleyError)).toMatchObject({
      reason: "ETAG_MISMATCH",
    });
  });

  it("are deleted", async () => {
    const server = new Fake();
    const client = newClient(server);
    server.faults(1, "DeleteChannel", { drop: true, applied: true });
    await client.deleteChannel("room", { etag: "etag-1" });
    expect(server.of<DeleteChannelRequest>("DeleteChannel").map((r) => [r.channelId, r.etag])).toEqual([
      ["room", "etag-1"],
      ["room", "etag-1"],
    ]);
    expect(await rejected(client.deleteChannel("room", { etag: "old" }), ParleyError)).toMatchObject({
      reason: "ETAG_MISMATCH",
    });
  });

  it("have members with roles", async () => {
    const server = new Fake();
    const client = newClient(server);
    await client.createChannel("room", { membersOnly: true, members: ["ann", { userId: "ben", role: "MEMBER" }] });
    await client.addMembers("room", ["cid", { userId: "dan" }, { userId: "eve", role: "MEMBER" }]);
    const asked = [
      ...server.of<CreateChannelRequest>("CreateChannel"),
      ...server.of<AddMembersRequest>("AddMembers"),
    ].flatMap((r) => r.members.map((m) => [m.userId, m.role]));
    const { UNSPECIFIED, MEMBER } = MemberRole;
    expect(asked).toEqual([
      ["ann", UNSPECIFIED],
      ["ben", MEMBER],
      ["cid", UNSPECIFIED],
      ["dan", UNSPECIFIED],
      ["eve", MEMBER],
    ]);
    const listed = await all(client.members("room"));
    expect(listed.map((m) => m.userId)).toEqual(["ann", "ben", "cid", "dan", "eve", "tester"]);
    expect(listed[0]).toEqual({ userId: "ann", role: "MEMBER", joinTime: new Date(0), readSeq: 0, epoch: "epoch-1" });
    server.role = 7 as MemberRole;
    expect((await all(client.members("room")))[0]?.role).toBe("ROLE_7");
    for (const wrong of ["\ud800", { userId: "x", role: "KING" as "MEMBER" }, { userId: "x", role: "0" as "MEMBER" }]) {
      expect(await rejected(client.addMembers("room", [wrong]), ParleyError)).toMatchObject({ field: "members" });
    }
  });

  it("take any number of members", async () => {
    const server = new Fake();
    const client = newClient(server);
    const users = Array.from({ length: 1_001 }, (_, i) => `user-${i}`);
    await client.createChannel("room", { membersOnly: true });
    server.faults(1, "AddMembers", { drop: true });
    await client.addMembers("room", users);
    const parts = server.of<AddMembersRequest>("AddMembers").map((r) => r.members.length);
    expect(parts).toEqual([500, 500, 500, 1]);
    await client.removeMembers("room", users.slice(1));
    expect([...(server.log("room").members ?? [])]).toEqual(["tester", "user-0"]);
    await client.removeMembers("room", []);
    expect(server.of<RemoveMembersRequest>("RemoveMembers").at(-1)?.userIds).toEqual([]);
    expect(await client.markRead("room", 3)).toEqual({ seq: 3, unread: 0, epoch: "epoch-1" });
    expect(await rejected(client.markRead("room", Number.NaN), ParleyError)).toMatchObject({ field: "seq" });
  });
});

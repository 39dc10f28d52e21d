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
  it("goes page by page, either way", async () => {
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

  it("asks for what the client was told, the same on all pages", async () => {
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

  it("keeps the highest that the client was told, until entries are lost", async () => {
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

  it("forgets what a restored log no longer has", async () => {
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

  it("ends with RESYNC, and what can't pass", async () => {
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
  it("are listed page by page, and made with members", async () => {
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
    server.faults(1, "CreateChannel", { drop: true, applied: true });
    const err = await rejected(client.createChannel("d", { membersOnly: true, members: ["bob"] }), ParleyError);
    expect(err.reason).toBe("CHANNEL_EXISTS");
    expect(err.message).toContain("may have made it");
    expect((await rejected(client.createChannel("d"), ParleyError)).message).not.toContain("may have");
    expect(await client.createChannel("e")).toMatchObject({ channelId: "e", createdBy: "tester", membersOnly: false });
  });

  it("take any number of members", async () => {
    const server = new Fake();
    const client = newClient(server);
    const users = Array.from({ length: 1_001 }, (_, i) => `user-${i}`);
    await client.createChannel("room", { membersOnly: true });
    server.faults(1, "AddMembers", { drop: true });
    await client.addMembers("room", users);
    const parts = server.of<pb.AddMembersRequest>("AddMembers").map((r) => r.userIds.length);
    expect(parts).toEqual([500, 500, 500, 1]);
    await client.removeMembers("room", users.slice(1));
    expect([...(server.log("room").members ?? [])]).toEqual(["tester", "user-0"]);
    await client.removeMembers("room", []);
    expect(server.of<pb.RemoveMembersRequest>("RemoveMembers").at(-1)?.userIds).toEqual([]);
    expect(await client.markRead("room", 3)).toEqual({ seq: 3, unread: 0 });
    expect(await rejected(client.markRead("room", Number.NaN), ParleyError)).toMatchObject({ field: "seq" });
  });
});

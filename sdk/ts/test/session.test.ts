import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type * as pb from "@parleyhq/api/parley/v1/session_pb.js";
import { describe, expect, it } from "vitest";
import { Code, type Event, fromStart, live, OpenTexts, ParleyError } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { eventually, newClient, nextEvent, rejected, subscribe, wantQuiet } from "./helper.js";

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) {
    list.push(item);
  }
  return list;
}

/** lose loses the answer to the next call of a method, which is then repeated. */
function lose(server: Fake, method: string): void {
  server.faults(1, method, { drop: true, applied: true });
}

describe("a session", () => {
  it("is created by its first message, and has those of user and assistant", async () => {
    const server = new Fake();
    const client = newClient(server);
    const session = client.session("chat");
    expect([session.id, session.channelId]).toEqual(["chat", "~chat"]);
    lose(server, "AppendSessionMessage");
    const metadata = { k: "v" };
    const prompt = await session.append("user", "hello", { metadata, sender: "ann", title: "Greetings" });
    expect(prompt).toMatchObject({ channelId: "~chat", seq: 1, count: 1, duplicate: true });
    const [first, second] = server.of<pb.AppendSessionMessageRequest>("AppendSessionMessage");
    expect(first).toEqual(second);
    expect(first).toMatchObject({ role: "user", userId: "ann", title: "Greetings", open: false, metadata });
    const answer = await session.append("assistant", "hi", { clientMsgId: "a" });
    expect(answer).toMatchObject({ seq: 2, clientMsgId: "a", duplicate: false });
    lose(server, "ListSessionMessages");
    const messages = await all(session.messages({ afterSeq: 0, pageSize: 1 }));
    expect(messages.map((m) => [m.type, m.content, m.fromId])).toEqual([
      ["user", "hello", "ann"],
      ["assistant", "hi", "tester"],
    ]);
    const lists = server.of<pb.ListSessionMessagesRequest>("ListSessionMessages");
    expect(lists.map((r) => [r.sessionId, Number(r.minSeq), r.pageSize])).toEqual(Array(3).fill(["chat", 2, 1]));
    expect(server.of("SendMessage").concat(server.of("ListMessages"))).toEqual([]);
  });

  it("has messages that can be edited, recalled and marked as read", async () => {
    const server = new Fake();
    const client = newClient(server);
    const session = client.session("chat");
    const { msgId } = await session.append("user", "hello");
    lose(server, "EditSessionMessage");
    const edited = await session.edit(msgId, "hello again", { clientMsgId: "e" });
    expect(edited).toMatchObject({ seq: 2, duplicate: true, clientMsgId: "e", message: { content: "hello again" } });
    expect(await client.edit("~chat", msgId, "and again")).toMatchObject({ seq: 3, channelId: "~chat" });
    lose(server, "MarkSessionRead");
    expect(await session.markRead(1)).toEqual({ seq: 1, unread: 0, epoch: "epoch-1" });
    lose(server, "RecallSessionMessage");
    expect((await session.recall(msgId)).message).toMatchObject({ status: "recalled", content: "" });
    const methods = new Set(server.requests.map((r) => r.method));
    expect([...methods].filter((m) => !m.includes("Session"))).toEqual([]);
  });

  it("has messages that a user can cancel while they are open", async () => {
    const server = new Fake();
    const session = newClient(server).session("chat");
    await session.append("user", "hello");
    const answer = await session.open("assistant");
    await answer.write("half");
    await eventually(() => server.sessions.text(answer.msgId) === "half");
    lose(server, "CancelSessionMessage");
    const cancelled = await session.cancel(answer.msgId);
    expect(cancelled).toMatchObject({ seq: 3, duplicate: true, message: { content: "half", status: "cancelled" } });
    expect(await rejected(session.cancel(answer.msgId), ParleyError)).toMatchObject({ reason: "MESSAGE_CLOSED" });
    await answer.write(" more").catch(() => {});
    await eventually(() => answer.ended);
  });

  it("can be listed, renamed and deleted", async () => {
    const server = new Fake();
    const client = newClient(server);
    for (const id of ["a", "b", "c"]) {
      await client.session(id).append("user", `hello ${id}`, { title: `Title ${id}` });
    }
    await client.session("d").append("user", "hello", { sender: "bob" });
    lose(server, "RenameSession");
    await client.session("a").rename("New");
    await client.session("b").rename("");
    lose(server, "DeleteSession");
    await client.session("c").delete();
    await client.session("c").delete();
    lose(server, "ListSessions");
    const mine = await all(client.sessions({ pageSize: 1 }));
    expect(mine.map((s) => [s.sessionId, s.title])).toEqual([
      ["a", "New"],
      ["b", ""],
    ]);
    expect(mine[0]).toEqual({
      sessionId: "a",
      channelId: "~a",
      ownerId: "tester",
      title: "New",
      createTime: expect.any(Date),
      activeTime: expect.any(Date),
      headSeq: 1,
      count: 1,
      readSeq: 0,
      unread: 1,
      epoch: "epoch-1",
    });
    expect((await all(client.sessions({ userId: "bob" }))).map((s) => s.sessionId)).toEqual(["d"]);
    expect((await all(client.sessions({ allUsers: true }))).length).toBe(3);
    const gone = client.session("c");
    expect(await rejected(gone.append("user", "again"), ParleyError)).toMatchObject({ reason: "SESSION_DELETED" });
    expect(await rejected(all(gone.messages()), ParleyError)).toMatchObject({ reason: "CHANNEL_NOT_FOUND" });
    // The list has told where the log ends.
    await all(client.session("a").messages());
    expect(server.of<pb.ListSessionMessagesRequest>("ListSessionMessages").at(-1)?.minSeq).toBe(1n);
  });

  it("refuses values that cannot be encoded", async () => {
    const server = new Fake();
    const client = newClient(server);
    const session = client.session("chat");
    const bad = "\ud800";
    const field = async (call: Promise<unknown>) => {
      const err = await rejected(call, ParleyError);
      expect(err.reason).toBe("INVALID_FIELD");
      return err.field;
    };
    expect(await field(client.session("").append("user", "x"))).toBe("session_id");
    expect(await field(client.session(bad).append("user", "x"))).toBe("session_id");
    expect(await field(session.append(bad as "user", "x"))).toBe("role");
    expect(await field(session.append("user", bad))).toBe("content");
    expect(await field(session.append("user", "x", { clientMsgId: bad }))).toBe("client_msg_id");
    expect(await field(session.append("user", "x", { sender: bad }))).toBe("user_id");
    expect(await field(session.append("user", "x", { metadata: { a: bad } }))).toBe("metadata");
    expect(await field(session.open("user", { title: bad }))).toBe("title");
    expect(await field(session.rename(bad))).toBe("title");
    expect(await field(session.cancel(bad))).toBe("msg_id");
    expect(await field(client.session(bad).delete())).toBe("session_id");
    expect(await field(all(client.sessions({ userId: bad })))).toBe("user_id");
    expect(await field(all(client.sessions({ pageSize: 0.5 })))).toBe("page_size");
    expect(server.requests).toEqual([]);
  });

  it("that does not exist cannot be listed", async () => {
    const server = new Fake();
    server.faults(1, "CancelSessionMessage", { error: failure(Code.NotFound, ErrorReason.CHANNEL_NOT_FOUND) });
    const session = newClient(server).session("none");
    expect(await rejected(session.cancel("x"), ParleyError)).toMatchObject({ code: Code.NotFound });
    expect(await rejected(session.rename("x"), ParleyError)).toMatchObject({ reason: "CHANNEL_NOT_FOUND" });
  });
});

describe("a subscription to a session", () => {
  it("delivers the text of an open message, and again from its start on a new stream", async () => {
    const server = new Fake();
    const session = newClient(server).session("chat");
    await session.append("user", "hello");
    const sub = subscribe(newClient(server), fromStart("~chat"));
    const texts = new OpenTexts();
    const answer = await session.open("assistant");
    const seen: string[] = [];
    const next = async (): Promise<Event> => {
      const event = await nextEvent(sub);
      const changed = texts.apply(event);
      seen.push(`${event.kind} ${event.seq} ${changed === undefined ? "" : texts.get(changed)}`);
      return event;
    };
    await next();
    expect(await next()).toMatchObject({ kind: "sent", seq: 2, message: { status: "open", content: "" } });
    await answer.write("héll");
    expect(await next()).toEqual({
      kind: "delta",
      channelId: "~chat",
      seq: 0,
      epoch: "epoch-1",
      msgId: answer.msgId,
      offset: 0,
      text: "héll",
    });
    await answer.write("o");
    expect(await next()).toMatchObject({ offset: 5, text: "o" });
    expect(sub.position("~chat")?.seq).toBe(2);
    server.endStreams();
    expect(await next()).toMatchObject({ offset: 0, text: "héllo" });
    await answer.complete("héllo!");
    expect(await next()).toMatchObject({ kind: "closed", seq: 3, message: { content: "héllo!", status: "sent" } });
    expect(texts.get(answer.msgId)).toBeUndefined();
    expect(seen.slice(1)).toEqual(["sent 2 ", "delta 0 héll", "delta 0 héllo", "delta 0 héllo", "closed 3 undefined"]);
    await wantQuiet(sub);
  });

  it("delivers no delta before the session's state", async () => {
    const server = new Fake();
    const session = newClient(server).session("chat");
    await session.append("user", "hello");
    const answer = await session.open("assistant");
    await answer.write("hello");
    await eventually(() => server.sessions.text(answer.msgId) === "hello");
    const sub = subscribe(newClient(server), live("~chat"));
    expect((await sub.next()).kind).toBe("channel_state");
    expect(await sub.next()).toMatchObject({ kind: "delta", offset: 0, text: "hello" });
  });
});

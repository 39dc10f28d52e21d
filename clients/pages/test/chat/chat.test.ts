import { describe, expect, test, vi } from "vitest";
import type { Message } from "../../src/chat/model/types";
import { FakeStorage, gate, parleyError, setup, texts } from "./fake";

describe("chat", () => {
  test("unread counts start from the list, follow live messages but not edits, and reset when seen", async () => {
    const { server, world, chat } = setup();
    for (let i = 0; i < 5; i++) server.log("a").send("alice", `${i}`);
    server.read.set("a", 2);
    void chat.start();
    await world.settle();
    expect(chat.channels.unread.value).toBe(3);
    server.say("a", "bob", "6");
    server.change("a", 0, "edited", "zero");
    await world.settle();
    expect(chat.channels.list.value).toMatchObject([{ id: "a", unread: 4, last: { content: "6" } }]);

    chat.show("a");
    await world.settle();
    expect(chat.open.value?.view.value.divider).toBe(2);
    expect(texts(chat)).toEqual(["zero", "1", "2", "3", "4", "6"]);
    chat.watch(true);
    await world.settle();
    expect(chat.channels.unread.value).toBe(0);
    expect(server.marked).toEqual([["a", 6]]);
    expect(world.readElsewhere).toEqual([["a", 6]]);
    chat.readElsewhere("a", 1, 1);
    expect(chat.channels.readSeq("a")).toBe(6);
  });

  test("visible live messages are marked as read, one call at a time and at most one a second", async () => {
    const { server, world, chat } = setup();
    const first = gate();
    server.beforeMark = first.wait;
    void chat.start();
    chat.show("a");
    await world.settle();
    chat.watch(true);
    for (let i = 1; i <= 50; i++) server.say("a", "alice", `${i}`);
    await world.settle();
    expect(chat.channels.unread.value).toBe(0);
    expect(chat.open.value?.view.value.divider).toBeNull();
    first.open();
    await world.settle();
    expect(server.marked).toEqual([["a", 1]]);
    await world.pass(1_000);
    expect(server.marked).toEqual([
      ["a", 1],
      ["a", 50],
    ]);
  });

  test("a thousand events are published once per frame", async () => {
    const { server, world, chat } = setup();
    server.log("a").send("alice", "0");
    void chat.start();
    chat.show("a");
    await world.settle();
    let drawn = 0;
    chat.open.value?.view.subscribe(() => drawn++);
    let listed = 0;
    chat.channels.list.subscribe(() => listed++);
    for (let i = 1; i <= 1_000; i++) server.say("a", "alice", `${i}`);
    await world.settle();
    expect(texts(chat)).toHaveLength(1_001);
    expect(drawn).toBe(2); // the old state and the new one
    expect(listed).toBe(2);
  });

  test("events during the load of the first page are in order and in their newest state", async () => {
    const { server, world, chat } = setup();
    for (let i = 0; i < 250; i++) server.log("a").send("alice", `${i}`);
    const page = gate();
    server.afterPage = page.wait; // the page was read and has not arrived
    void chat.start();
    chat.show("a");
    await world.settle();
    server.say("a", "bob", "late");
    server.change("a", 249, "recalled", "");
    await world.settle();
    expect(texts(chat)).toEqual([]);
    page.open();
    await world.settle();
    expect(texts(chat).slice(-3)).toEqual(["248", "", "late"]);
    await chat.open.value?.loadOlder();
    await chat.open.value?.loadOlder();
    await world.settle();
    expect(texts(chat)).toHaveLength(251);
    expect(chat.open.value?.view.value.atStart).toBe(true);
  });

  test("messages are sent in order, shown at once, and kept until the server has them", async () => {
    const { server, world, chat, storage } = setup();
    const answers = gate();
    server.beforeSend = answers.wait;
    void chat.start();
    chat.show("a");
    await world.settle();
    chat.send("one");
    chat.send("/me waves");
    expect(chat.pending.value.map((p) => [p.content, p.type])).toEqual([
      ["one", "text"],
      ["waves", "action"],
    ]);
    expect(storage.length).toBe(2);
    answers.open();
    await world.settle();
    expect(server.sent).toEqual(["one", "waves"]);
    expect(chat.pending.value).toEqual([]);
    expect(storage.length).toBe(0);
    expect(texts(chat)).toEqual(["one", "waves"]);
    expect(chat.channels.unread.value).toBe(0);
  });

  test("a new page sends the unsent messages of a crashed one, once", async () => {
    const first = setup();
    first.server.beforeSend = () => new Promise(() => {});
    void first.chat.start();
    first.chat.show("a");
    for (const text of ["one", "two"]) first.chat.send(text);
    await first.world.settle();

    // The server stored the first message before the crash.
    const id = first.chat.pending.value[0]?.clientMsgId;
    const { server, world, chat } = setup(first.storage);
    server.log("a").send("me", "one", id);
    void chat.start();
    chat.show("a");
    await world.settle();
    expect(texts(chat)).toEqual(["one", "two"]);
    expect(first.storage.length).toBe(0);
  });

  test("a permanently refused message shows why, can be retried or discarded, and does not block later ones", async () => {
    const { server, world, chat } = setup();
    server.beforeSend = async (content) => {
      if (content === "bad") throw parleyError("TOO_LARGE");
    };
    void chat.start();
    chat.show("a");
    await world.settle();
    for (const text of ["bad", "good", "bad"]) chat.send(text);
    await world.settle();
    expect(texts(chat)).toEqual(["good"]);
    expect(chat.pending.value.map((p) => p.refused)).toEqual(["The text is too long.", "The text is too long."]);
    server.beforeSend = async () => {};
    const [again, away] = chat.pending.value;
    if (again && away) {
      chat.retry(again);
      chat.discard(away);
    }
    await world.settle();
    expect(texts(chat)).toEqual(["good", "bad"]);
    expect(chat.pending.value).toEqual([]);
  });

  test("a refused token ends the connection and keeps unsent messages", async () => {
    const { server, world, chat, storage } = setup();
    server.beforeSend = async () => {
      throw parleyError("TOKEN_EXPIRED", { code: 16 });
    };
    void chat.start();
    chat.show("a");
    await world.settle();
    chat.send("kept");
    await world.settle();
    expect(chat.connection.value).toMatchObject({ state: "ended", end: "token", reason: "The token has expired." });
    expect(chat.pending.value).toMatchObject([{ content: "kept", refused: "" }]);
    chat.close();
    const next = setup(storage);
    void next.chat.start();
    await next.world.settle();
    expect(next.server.sent).toEqual(["kept"]);
  });

  test("channels are listed every 30 s without new abort listeners, until the chat is closed", async () => {
    const { server, world, chat } = setup();
    void chat.start();
    await world.settle();
    const listen = vi.spyOn(AbortSignal.prototype, "addEventListener");
    const ids = () => chat.channels.list.value.map((c) => c.id);
    for (const id of ["a", "b", "c"]) {
      server.log(id).send("alice", "x");
      expect(ids()).not.toContain(id);
      await world.pass(30_000);
      expect(ids()).toContain(id);
    }
    expect(listen).not.toHaveBeenCalled();
    listen.mockRestore();
    expect(world.timers).toBe(1);
    chat.close();
    expect(world.timers).toBe(0);
  });

  test("a gap reloads the channel", async () => {
    const { server, world, chat } = setup();
    server.log("a").send("alice", "old");
    void chat.start();
    chat.show("a");
    await world.settle();
    server.logs.delete("a");
    for (const text of ["x", "y"]) server.log("a").send("alice", text);
    const gap = { afterSeq: 1, toSeq: 2, epoch: "f", reason: "EPOCH_CHANGED" as const };
    server.tell({ kind: "gap", channelId: "a", seq: 2, epoch: "f", gap } as never);
    await world.settle();
    expect(texts(chat)).toEqual(["x", "y"]);
    expect(chat.channels.list.value).toMatchObject([{ id: "a", unread: 2 }]);
  });

  test("a lost channel shows why, and returns when it is listed again", async () => {
    const { server, world, chat } = setup();
    server.log("a").send("alice", "x");
    void chat.start();
    chat.show("a");
    await world.settle();
    server.tell({ kind: "lost", channelId: "a", seq: 1, epoch: "e", reason: "NOT_MEMBER" } as never);
    await world.settle();
    expect(chat.open.value?.view.value.error).toContain("member");
    await chat.refresh(); // too soon: the list can be old
    expect(chat.channels.lost("a")).not.toBe("");
    await world.pass(6_000);
    await chat.refresh();
    await world.settle();
    expect(chat.channels.lost("a")).toBe("");
    expect(chat.open.value?.view.value.error).toBe("");
  });

  test("channels that the server refuses are not followed", async () => {
    const { server, world, chat } = setup();
    for (const id of ["a", "b", "c"]) server.log(id).send("alice", "x");
    server.admit = (ids) => {
      if (ids.includes("b")) throw parleyError("NOT_MEMBER", { positions: [{ channelId: "b" }] });
      if (ids.includes("c"))
        throw parleyError("CAPABILITY_MISSING", { field: `channels[${ids.indexOf("c")}].channel_id` });
    };
    void chat.start();
    await world.settle();
    expect(server.subscriptions).toBe(3);
    expect(chat.connection.value.state).toBe("live");
    expect(["a", "b", "c"].map((id) => chat.channels.lost(id))).toEqual([
      "",
      expect.stringContaining("members only"),
      "The token does not allow this.",
    ]);
  });

  test("a user does not send the unsent messages of another user whose name extends theirs with a slash", async () => {
    const first = setup(new FakeStorage(), "org/ann");
    first.server.beforeSend = () => new Promise(() => {});
    void first.chat.start();
    first.chat.show("a");
    first.chat.send("ann's");
    await first.world.settle();
    const other = setup(first.storage, "org");
    void other.chat.start();
    await other.world.settle();
    expect(other.server.sent).toEqual([]);
    const again = setup(first.storage, "org/ann");
    void again.chat.start();
    await again.world.settle();
    expect(again.server.sent).toEqual(["ann's"]);
  });

  test("messages keep their order if the clock is set back", async () => {
    const { server, world, chat, storage } = setup();
    server.beforeSend = () => new Promise(() => {});
    chat.show("a");
    chat.send("one");
    world.time -= 60_000;
    chat.send("two");
    expect(chat.pending.value.map((p) => p.content)).toEqual(["one", "two"]);
    const next = setup(storage);
    next.world.time -= 120_000;
    next.chat.show("a");
    next.chat.send("three");
    expect(next.chat.pending.value.map((p) => p.content)).toEqual(["one", "two", "three"]);
  });

  test("a message of another tab is shown, sent if that tab does not, and removed when that tab discards it", async () => {
    const writer = setup();
    writer.server.beforeSend = () => new Promise(() => {});
    const { server, world, chat } = setup(writer.storage);
    void chat.start();
    chat.show("a");
    await world.settle();
    writer.chat.show("a");
    const write = (text: string) => {
      writer.chat.send(text);
      const pending = writer.chat.pending.value.at(-1);
      if (!pending) throw new Error("nothing pending");
      const key = `parley.outbox/me/${pending.clientMsgId}`;
      chat.storedElsewhere(key);
      return { pending, key };
    };
    const kept = write("kept");
    const discarded = write("discarded");
    expect(chat.pending.value).toEqual([kept.pending, discarded.pending]);
    await world.settle();
    expect(server.sent).toEqual([]); // the tab that wrote it sends it first
    writer.chat.discard(discarded.pending);
    chat.storedElsewhere(discarded.key);
    expect(chat.pending.value).toEqual([kept.pending]);
    await world.pass(2_000);
    expect(server.sent).toEqual(["kept"]);
    expect(chat.pending.value).toEqual([]);
    expect(writer.storage.length).toBe(0);
    chat.storedElsewhere("parley.outbox/you/x");
    chat.storedElsewhere("parley.theme");
  });

  test("an edit reports whether the server accepted it", async () => {
    const { server, world, chat } = setup();
    void chat.start();
    chat.show("a");
    const mine = server.say("a", "me", "x");
    await world.settle();
    expect(await chat.edit(mine, "y")).toBe(true);
    server.beforeEdit = async () => {
      throw parleyError("TOO_LARGE");
    };
    expect(await chat.edit(mine, "z")).toBe(false);
    expect(chat.notice.value).toBe("The text is too long.");
  });

  test("typing is sent every 3 s, and shown for 6 s or until the message arrives", async () => {
    const { server, world, chat } = setup();
    void chat.start();
    chat.show("a");
    await world.settle();
    for (let i = 0; i < 10; i++) chat.typing();
    expect(server.typed).toBe(1);
    await world.pass(3_000);
    chat.typing();
    expect(server.typed).toBe(2);
    // The server ignores a second typing event within a second, so typing right after a send is
    // reported later, if it continues.
    chat.send("x");
    chat.typing();
    expect(server.typed).toBe(2);
    await world.pass(1_100);
    expect(server.typed).toBe(3);
    chat.send("y");
    chat.typing();
    chat.send("z");
    await world.pass(1_100);
    expect(server.typed).toBe(3);

    const typing = () => chat.open.value?.view.value.typing;
    const types = async (userId: string) => {
      server.tell({ kind: "typing", channelId: "a", seq: 0, epoch: "", userId });
      await world.settle();
    };
    for (const user of ["me", "alice", "bob"]) await types(user);
    expect(typing()).toEqual(["alice", "bob"]);
    server.say("a", "alice", "there");
    await world.settle();
    expect(typing()).toEqual(["bob"]);
    await world.pass(5_000);
    await types("bob");
    await world.pass(5_000);
    expect(typing()).toEqual(["bob"]);
    await world.pass(1_000);
    expect(typing()).toEqual([]);
  });

  test("only own messages can be changed, and not after their recall", async () => {
    const { server, world, chat } = setup();
    void chat.start();
    chat.show("a");
    const [theirs, mine] = [server.say("a", "alice", "x"), server.say("a", "me", "y")];
    await world.settle();
    expect(chat.own(theirs)).toBe(false);
    await chat.edit(mine, "z");
    await world.settle();
    expect(texts(chat)).toEqual(["x", "z"]);
    await chat.recall(mine);
    await world.settle();
    const gone = chat.open.value?.findLast(() => true) as Message;
    expect(gone).toMatchObject({ status: "recalled", content: "" });
    expect(chat.own(gone)).toBe(false);
  });

  test("scrolling far back and returning keeps a bounded number of messages", async () => {
    const { server, world, chat } = setup();
    const total = 24_000;
    for (let i = 1; i <= total; i++) server.log("a").send("alice", `${i}`);
    void chat.start();
    chat.show("a");
    await world.settle();
    const conversation = chat.open.value;
    if (!conversation) throw new Error("not open");
    const size = () => texts(chat).length;
    while (!conversation.view.value.atStart) {
      await conversation.loadOlder();
      await world.settle();
    }
    expect(size()).toBeLessThanOrEqual(20_000);
    expect(texts(chat)[0]).toBe("1");
    expect(conversation.view.value.atEnd).toBe(false);
    server.say("a", "bob", "live");
    await world.settle();
    while (!conversation.view.value.atEnd) {
      await conversation.loadNewer();
      await world.settle();
    }
    expect(size()).toBeLessThanOrEqual(20_000);
    expect(texts(chat).slice(-2)).toEqual([`${total}`, "live"]);
    chat.watch(true);
    await world.settle();
    expect(size()).toBeLessThanOrEqual(2_000);
    expect(texts(chat).at(-1)).toBe("live");
  });

  test("a channel that fills while it is not visible keeps a bounded number of messages, and continues", async () => {
    const { server, world, chat } = setup();
    void chat.start();
    chat.show("a");
    await world.settle();
    for (let i = 1; i <= 21_000; i++) server.say("a", "alice", `${i}`);
    await world.settle();
    const view = () => chat.open.value?.view.value;
    expect(texts(chat).length).toBeLessThanOrEqual(20_000);
    expect(view()?.atEnd).toBe(false);
    while (!view()?.atEnd) {
      await chat.open.value?.loadNewer();
      await world.settle();
    }
    expect(texts(chat).at(-1)).toBe("21000");
    const places = (view()?.chunks ?? []).flatMap((c) => c.messages.map((m) => m.seq));
    expect(places.every((seq, i) => i === 0 || seq === (places[i - 1] ?? 0) + 1)).toBe(true);
  });
});

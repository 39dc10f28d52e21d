import { describe, expect, test } from "vitest";
import { gate, parleyError, setup, texts } from "./fake";

describe("the stream of all channels", () => {
  test("a user who was removed and added again misses no message sent in between", async () => {
    const { server, world, chat } = setup();
    server.log("a").send("alice", "before");
    void chat.start();
    chat.show("a");
    await world.settle();
    server.tell({ kind: "lost", channelId: "a", seq: 1, epoch: "e", reason: "NOT_MEMBER" } as never);
    await world.settle();
    server.log("a").send("alice", "between");
    await world.pass(6_000);
    const page = gate();
    server.beforePage = page.wait;
    await chat.refresh();
    server.say("a", "alice", "after");
    await world.settle();
    expect(texts(chat)).toEqual(["before"]); // without "after", because messages in between are missing
    page.open();
    await world.settle();
    expect(texts(chat)).toEqual(["before", "between", "after"]);
  });

  test("a subscription that replaces another misses no event, and errors name the right channel", async () => {
    const { server, world, chat } = setup();
    for (const id of ["c", "b", "a"]) server.log(id).send("alice", "before");
    void chat.start();
    chat.show("b");
    await world.settle();
    // As in the SDK, a lost channel is not requested again, and channels that are added while away
    // are last.
    const order = server.followed.filter((id) => id !== "a");
    server.tell({ kind: "lost", channelId: "a", seq: 1, epoch: "e", reason: "NOT_MEMBER" } as never);
    await world.settle();
    server.away = true;
    server.state({ state: "connecting" });
    chat.show("nope");
    chat.show("b");
    server.log("b").send("alice", "between");
    server.end(parleyError("CAPABILITY_MISSING", { field: `channels[${order.length}].channel_id` }));
    await world.settle();
    expect(server.subscriptions).toBe(2);
    expect(["b", "c", "nope"].map((id) => chat.channels.lost(id) !== "")).toEqual([false, false, true]);
    expect(texts(chat)).toEqual(["before", "between"]);
  });

  test("with more channels than a stream can follow, the open one and those with the newest messages are followed", async () => {
    const { server, world, chat } = setup();
    const name = (i: number) => `c${String(i).padStart(3, "0")}`;
    for (let i = 0; i < 510; i++) {
      server.log(name(i)).seq = i; // which makes its time later
      server.log(name(i)).send("alice", "x");
    }
    server.admit = (ids) => {
      if (ids.length > 500) throw parleyError("LIMIT_EXCEEDED");
    };
    server.admitAdded = () => {
      if (server.followed.length >= 500) throw parleyError("LIMIT_EXCEEDED");
    };
    chat.show(name(0));
    void chat.start();
    await world.settle();
    expect(chat.connection.value.state).toBe("live");
    expect(server.followed).toHaveLength(500);
    expect(server.followed).toContain(name(0));
    expect(server.followed).not.toContain(name(10));
    chat.show(name(5));
    await world.settle();
    expect(texts(chat)).toEqual(["x"]);
    expect(server.followed).toHaveLength(500);
    expect(server.followed).toContain(name(5));
    expect(chat.channels.list.value.filter((c) => c.lost)).toEqual([]);
    server.say(name(0), "alice", "untold");
    chat.show(name(0));
    await world.settle();
    expect(texts(chat)).toEqual(["x", "untold"]);
  });

  test("a channel that was only opened is no longer listed and followed, whatever arrives late", async () => {
    const { server, world, chat } = setup();
    server.log("a").send("alice", "hello");
    void chat.start();
    await world.settle();
    const late = gate();
    server.admitAdded = async (id) => {
      if (id === "empty") return;
      await late.wait();
      if (id === "secret") throw parleyError("NOT_MEMBER");
    };
    const listed = () => chat.channels.list.value.map((c) => c.id);
    for (const id of ["empty", "secret", "slow"]) {
      chat.show(id);
      await world.settle();
      expect(listed()).toContain(id);
    }
    chat.show("a");
    await world.settle();
    expect(listed()).toEqual(["a"]);
    expect(server.followed).toEqual(["a"]);
    late.open();
    await world.settle();
    expect(listed()).toEqual(["a"]);
  });

  test("a channel that was only opened between two streams leaves the list with the next one", async () => {
    const { server, world, chat } = setup();
    server.log("a").send("alice", "hello");
    void chat.start();
    await world.settle();
    server.away = true;
    server.state({ state: "connecting" });
    for (const id of ["empty", "drafted", "a"]) {
      chat.show(id);
      if (id === "drafted") chat.typing();
    }
    await world.settle();
    expect(chat.channels.list.value).toHaveLength(3);
    server.end(parleyError("CAPABILITY_MISSING", { field: "channels[0].channel_id" }));
    await world.settle();
    expect(server.subscriptions).toBe(2);
    expect(chat.channels.list.value.map((c) => c.id).sort()).toEqual(["a", "drafted"]);
    expect(server.followed).not.toContain("empty");
  });

  test("a limit of the server does not mark the channel as lost", async () => {
    const { server, world, chat } = setup();
    server.admitAdded = () => {
      throw parleyError("LIMIT_EXCEEDED");
    };
    void chat.start();
    await world.settle();
    chat.show("a");
    await world.settle();
    expect(chat.channels.lost("a")).toBe("");
    server.admitAdded = () => {};
    chat.show(null);
    chat.show("a");
    await world.settle();
    expect(server.followed).toContain("a");
  });
});

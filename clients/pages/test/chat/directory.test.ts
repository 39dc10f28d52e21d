import { describe, expect, test } from "vitest";
import { FakeLog, setup } from "./fake";

/** start starts a chat with listed channels, and others of which the user has none. */
async function start(listed: string[], elsewhere: string[] = []) {
  const all = setup();
  for (const id of listed) all.server.log(id).send("alice", "x");
  for (const id of elsewhere) {
    const log = new FakeLog(id);
    log.send("alice", "x");
    all.server.elsewhere.set(id, log);
  }
  void all.chat.start();
  await all.world.settle();
  return { ...all, directory: all.chat.directory };
}

describe("the directory", () => {
  test("ranks the same id before those that begin with the text, and these before others", async () => {
    const { directory } = await start(["my-inc", "inc", "incidents"]);
    directory.search("#INC");
    expect(directory.result.value.matches.map((c) => c.id)).toEqual(["inc", "incidents", "my-inc"]);
    expect(directory.result.value.first).toBe("inc");
    expect(directory.result.value.offers).toEqual([]);
  });

  test("finds a channel of others in lower case, and never offers to create its twin", async () => {
    const { directory, world } = await start([], ["general"]);
    directory.search("General");
    expect(directory.result.value.offers).toEqual([{ id: "General", kind: "looking" }]);
    await world.pass(200);
    expect(directory.result.value.offers).toEqual([{ id: "general", kind: "open", count: 1 }]);
    expect(await directory.choose()).toBe("general");
  });

  test("finds a channel of others with a capital or in capitals", async () => {
    const { directory, world } = await start([], ["General", "OPS"]);
    for (const [text, id] of [
      ["general", "General"],
      ["Ops", "OPS"],
    ] as const) {
      directory.search(text);
      await world.pass(200);
      expect(directory.result.value.offers).toEqual([{ id, kind: "open", count: 1 }]);
      expect(await directory.choose()).toBe(id);
    }
  });

  test("offers to create what does not exist, after the listed channels that match", async () => {
    const { directory, world, server } = await start(["incidents"]);
    directory.search("inc");
    await world.pass(200);
    expect(directory.result.value).toMatchObject({ first: "incidents", offers: [{ id: "inc", kind: "create" }] });
    expect(await directory.choose()).toBe("incidents");
    directory.search("new one");
    expect(await directory.choose()).toBe("new-one");
    server.allowed = ["history"];
    directory.search("another");
    expect(await directory.choose()).toBeNull();
    expect(directory.result.value.offers).toEqual([{ id: "another", kind: "absent" }]);
  });

  test("looks up only after a pause, once for each text", async () => {
    const { directory, world, server } = await start([]);
    for (const text of ["n", "ne", "new"]) directory.search(text);
    await world.pass(200);
    directory.search("new");
    await world.pass(200);
    await directory.choose();
    expect(server.lookedUp).toEqual(["new", "New", "NEW"]);
  });

  test("chooses nothing if the user entered something else meanwhile", async () => {
    const { directory } = await start([], ["general"]);
    directory.search("general");
    const choice = directory.choose();
    directory.search("genera");
    expect(await choice).toBeNull();
  });

  test("without a connection it opens what the text spells, and knows nothing of it", async () => {
    const { directory, world, server } = await start([]);
    server.state({ state: "waiting", wait: 1_000 });
    directory.search("somewhere");
    await world.pass(200);
    expect(directory.result.value.offers).toEqual([{ id: "somewhere", kind: "unknown" }]);
    expect(await directory.choose()).toBe("somewhere");
    expect(server.lookedUp).toEqual([]);
  });

  test("says what is not an id", async () => {
    const { directory } = await start([]);
    directory.search("größe");
    expect(directory.result.value.offers).toMatchObject([{ kind: "invalid" }]);
    expect(await directory.choose()).toBeNull();
  });
});

describe("rights", () => {
  test("with a token that can only send, nothing is read and own messages are shown", async () => {
    const { server, world, chat } = setup();
    server.allowed = ["send"];
    void chat.start();
    chat.show("a");
    await world.settle();
    chat.send("hello");
    await world.settle();
    expect(server.asked).toEqual([]);
    expect(server.followed).toEqual([]);
    expect(chat.channels.lost("a")).toBe("");
    expect(chat.open.value?.view.value.chunks.flatMap((c) => c.messages.map((m) => m.content))).toEqual(["hello"]);
    expect(server.marked).toEqual([]);
  });

  test("with a token that can only read, own messages cannot be changed and no typing is sent", async () => {
    const { server, world, chat } = setup();
    server.allowed = ["history", "subscribe"];
    server.log("a").send("me", "mine");
    void chat.start();
    chat.show("a");
    await world.settle();
    const mine = chat.open.value?.findLast(() => true);
    expect(mine && chat.own(mine)).toBe(false);
    expect(chat.canWrite("a")).toBe(false);
    chat.typing();
    expect(server.typed).toBe(0);
  });
});

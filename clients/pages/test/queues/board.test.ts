import { describe, expect, test } from "vitest";
import { Board, historyEvery, newPerRound, pollEvery, topicsEvery, topicsPerRound } from "../../src/queues/model/board";
import { Letters, lettersPerPage } from "../../src/queues/model/letters";
import { Polled } from "../../src/queues/model/polled";
import { parleyError } from "../chat/fake";
import { FakeClock, FakeQueues } from "./fake";

function begin(queues = new FakeQueues()) {
  const clock = new FakeClock();
  const board = new Board(queues.client, clock);
  return { queues, clock, board };
}

/** running returns a board that has counted every topic once. */
async function running(queues = new FakeQueues()) {
  const world = begin(queues);
  world.board.start();
  await world.clock.pass(0);
  return world;
}

describe("board", () => {
  test("topics are listed with their counts, and rates are computed from the counters", async () => {
    const { queues, clock, board } = begin();
    const counts = { produced: 100, length: 40, deadLetters: 2 };
    const jobs = queues.topic("jobs", counts, { workers: { acked: 60, waiting: 30 } });
    board.start();
    await clock.pass(0);
    expect(board.connection.value.state).toBe("live");
    expect(board.view("jobs")?.stats?.total.length).toBe(40);
    expect(board.view("jobs")?.produced.value).toBeNull();
    for (let i = 0; i < 8; i++) {
      jobs.produced += 150;
      jobs.groups[0].acked += 60;
      await clock.pass(pollEvery);
    }
    expect(board.view("jobs")?.produced.value).toBeCloseTo(50);
    expect(board.view("jobs")?.acked.value).toBeCloseTo(20);
    await clock.pass(8 * pollEvery);
    expect(board.view("jobs")?.produced.value).toBe(0);
  });

  test("new, deleted and recreated topics are detected", async () => {
    const { queues, clock, board } = await running();
    expect(board.loaded.value).toBe(true);
    expect(board.topics.value).toEqual([]);
    queues.topic("b");
    queues.topic("a", { produced: 500 });
    await clock.pass(topicsEvery + pollEvery);
    expect(board.topics.value.map((v) => v.topic.name)).toEqual(["a", "b"]);
    const before = board.view("a")?.produced;
    const states = new Set<string>();
    board.connection.subscribe(({ state }) => states.add(state));
    queues.drop("a");
    queues.drop("b");
    queues.topic("a", { produced: 3 });
    await clock.pass(topicsEvery + 2 * pollEvery);
    expect(board.topics.value.map((v) => v.topic.name)).toEqual(["a"]);
    expect(board.view("a")?.produced).not.toBe(before);
    expect(board.view("a")?.produced.value).toBe(0);
    expect([...states]).toEqual(["live"]);
  });

  test("with many topics each is counted soon, then the chosen one in each round and the others in turn", async () => {
    const queues = new FakeQueues();
    const names = Array.from({ length: 35 }, (_, i) => `t${String(i).padStart(2, "0")}`);
    for (const name of names) queues.topic(name);
    const { clock, board } = begin(queues);
    board.start();
    await clock.pass(0);
    expect(queues.asked.length).toBe(newPerRound);
    await clock.pass(pollEvery);
    expect(new Set(queues.asked)).toEqual(new Set(names));
    queues.asked.length = 0;
    await clock.pass(9 * pollEvery);
    expect(queues.asked.length).toBe(9 * topicsPerRound);
    board.choose("t34");
    await clock.pass(0);
    queues.asked.length = 0;
    await clock.pass(34 * pollEvery);
    const times = (name: string) => queues.asked.filter((asked) => asked === name).length;
    expect(times("t34")).toBe(34);
    expect(names.slice(0, -1).map(times)).toEqual(Array(34).fill(1));
    expect(queues.most).toBe(1);
  });

  test("an open tab with a part makes at most 70 calls a minute, one at a time", async () => {
    const queues = new FakeQueues();
    for (const name of ["a", "b", "c"]) queues.topic(name, {}, { workers: {} });
    const { clock, board } = begin(queues);
    board.choose("a");
    board.start();
    await clock.pass(pollEvery);
    const polled = new Polled(board);
    polled.start((signal) => board.client.leases("a", "workers", signal));
    await clock.pass(pollEvery);
    queues.calls = 0;
    await clock.pass(60_000);
    expect(queues.calls).toBeGreaterThan(60);
    expect(queues.calls).toBeLessThanOrEqual(70);
    expect(queues.most).toBe(1);
    polled.close();
  });

  test("the chosen topic has the server's history and the settings of its groups", async () => {
    const { queues, clock, board } = begin();
    const jobs = queues.topic("jobs", {}, { mail: {}, sms: {} });
    queues.topic("other");
    jobs.history.push({ at: 1_000, produced: 5, groups: [] });
    board.choose("jobs");
    board.start();
    await clock.pass(0);
    expect(board.view("jobs")?.history).toEqual([{ at: 1_000, produced: 5, groups: [] }]);
    expect(board.groups.value?.map((g) => g.name)).toEqual(["mail", "sms"]);
    jobs.history.push({ at: 6_000, produced: 9, groups: [] });
    await clock.pass(4 * historyEvery);
    expect(board.view("jobs")?.history).toHaveLength(2);
    expect(queues.histories).toEqual(Array(5).fill("jobs"));
    board.choose("other");
    expect(board.groups.value).toBeNull();
    await clock.pass(0);
    expect(board.groups.value).toEqual([]);
  });

  test("a hidden page makes no calls, and polls at once when it is visible again", async () => {
    const { queues, clock, board } = await running();
    queues.topic("a");
    board.wake();
    await clock.pass(0);
    clock.seen = false;
    queues.calls = 0;
    board.wake();
    await clock.pass(600_000);
    expect(queues.calls).toBe(0);
    queues.asked.length = 0;
    clock.seen = true;
    board.wake();
    await clock.pass(0);
    expect(queues.asked.length).toBe(1);
    await clock.pass(5 * pollEvery);
    expect(queues.asked.length).toBe(6);
  });

  test("a failed poll is retried with backoff", async () => {
    const { queues, clock, board } = await running();
    queues.topic("a");
    await clock.pass(topicsEvery + pollEvery);
    queues.fail = () => new Error("The server can't be reached.");
    await clock.pass(pollEvery);
    const waiting = board.connection.value;
    expect(waiting).toMatchObject({ state: "waiting", reason: "The server can't be reached." });
    expect(waiting.state === "waiting" && waiting.until).toBeGreaterThan(clock.now());
    queues.calls = 0;
    await clock.pass(60_000);
    expect(queues.calls).toBeGreaterThan(4);
    expect(queues.calls).toBeLessThan(20);
    queues.fail = () => null;
    board.wake();
    await clock.pass(0);
    expect(board.connection.value.state).toBe("live");
  });

  test("a refused token or a missing capability stops polling until the user retries", async () => {
    for (const [reason, end] of [
      ["CAPABILITY_MISSING", "capability"],
      ["TOKEN_EXPIRED", "token"],
    ] as const) {
      const queues = new FakeQueues();
      queues.fail = () => parleyError(reason);
      const { clock, board } = await running(queues);
      expect(board.connection.value).toMatchObject({ state: "ended", end });
      board.wake();
      await clock.pass(60_000);
      expect(queues.calls).toBe(1);
      queues.fail = () => null;
      board.retry();
      await clock.pass(0);
      expect(board.connection.value.state).toBe("live");
    }
  });

  test("a topic that is selected before the start causes no second poll", async () => {
    const { queues, clock, board } = begin();
    queues.topic("a");
    board.choose("a");
    board.start();
    await clock.pass(5 * pollEvery);
    expect(queues.asked).toHaveLength(6);
    expect(queues.most).toBe(1);
  });

  test("polling stops after close", async () => {
    const { queues, clock, board } = await running();
    queues.fail = () => new Error("too late");
    board.wake();
    board.close();
    queues.calls = 0;
    board.wake();
    await clock.pass(60_000);
    expect(queues.calls).toBe(0);
    expect(board.connection.value.state).toBe("live");
  });
});

describe("a polled value", () => {
  test("is requested repeatedly, and a response to an earlier request is dropped", async () => {
    const { clock, board } = await running();
    const polled = new Polled<string>(board);
    let release = () => {};
    polled.start(
      () =>
        new Promise((resolve) => {
          release = () => resolve("old");
        }),
    );
    let asked = 0;
    polled.start(async () => `new ${++asked}`);
    await clock.pass(0);
    release();
    await clock.pass(0);
    expect(polled.value.value).toBe("new 1");
    await clock.pass(2 * pollEvery);
    expect(polled.value.value).toBe("new 3");
    polled.start(() => Promise.reject(new Error("no")));
    await clock.pass(0);
    expect([polled.value.value, polled.error.value]).toEqual(["new 3", "no"]);
    polled.start(async () => `newer ${++asked}`);
    polled.again();
    await clock.pass(0);
    expect(polled.value.value).toBe("newer 5");
    polled.close();
    polled.again();
    await clock.pass(60_000);
    expect(asked).toBe(5);
  });
});

describe("dead letters", () => {
  async function withLetters(n: number) {
    const queues = new FakeQueues();
    queues.topic("jobs", {}, { a: {}, b: {} });
    queues.bury("jobs", n, (i) => (i % 2 ? "a" : "b"));
    const world = await running(queues);
    const letters = new Letters(world.board, { topic: "jobs", group: "", code: "" });
    await letters.load();
    return { ...world, letters };
  }

  test("are loaded page by page, newest first, each once", async () => {
    const { letters } = await withLetters(60);
    expect(letters.list.value).toHaveLength(lettersPerPage);
    expect(letters.list.value[0]?.id).toBe("0-60-0");
    await letters.loadMore();
    await letters.loadMore();
    expect(letters.more.value).toBe(false);
    await letters.loadMore();
    expect(new Set(letters.list.value.map((l) => l.id)).size).toBe(60);
    expect(letters.list.value).toHaveLength(60);
  });

  test("a page that repeats letters of the previous one adds only the new ones", async () => {
    const { queues, letters } = await withLetters(60);
    const { letters: page } = queues.client;
    queues.client.letters = (query, from, limit, signal) => page(query, from === "" ? "" : "0-50-0", limit, signal);
    await letters.loadMore();
    expect(letters.list.value.map((l) => l.id)).toEqual(Array.from({ length: 36 }, (_, i) => `0-${60 - i}-0`));
  });

  test("one, several or all are replayed and removed from the list", async () => {
    const { queues, letters } = await withLetters(2_500);
    letters.counted(2_500);
    await letters.replay(["0-2500-0"]);
    letters.unfold("0-2499-0", true);
    letters.counted(2_499);
    expect(letters.stale.value).toBe(false);
    letters.unfold("0-2499-0", false);
    expect(letters.note.value).toBe("Replayed 1 dead letter.");
    expect(letters.list.value[0]?.id).toBe("0-2499-0");
    letters.select("0-2499-0", true);
    letters.select("0-2497-0", true);
    await letters.replay([...letters.selected.value]);
    expect(letters.selected.value.size).toBe(0);
    expect(queues.letters("jobs")).toHaveLength(2_497);
    letters.counted(2_500); // from before the replay
    letters.counted(2_497);
    letters.select("0-2496-0", true);
    letters.counted(2_497);
    expect(letters.stale.value).toBe(false);
    await letters.replay(null);
    expect(letters.note.value).toBe("Replayed 2497 dead letters.");
    expect(queues.letters("jobs")).toEqual([]);
    expect(letters.list.value).toEqual([]);
    expect(letters.work.value).toBeNull();
  });

  test("an empty selection replays none, not all", async () => {
    const { queues, letters } = await withLetters(3);
    await letters.replay([]);
    await letters.purge([], "jobs");
    expect(letters.note.value).toBe("Purged 0 dead letters.");
    expect(queues.letters("jobs")).toHaveLength(3);
  });

  test("many ids are sent in several calls", async () => {
    const { queues, letters } = await withLetters(2_500);
    const ids = queues.letters("jobs").map((l) => l.id);
    let purges = 0;
    queues.fail = (call) => {
      purges += call === "purge" ? 1 : 0;
      return null;
    };
    await letters.purge(ids.slice(1), "jobs");
    expect(queues.letters("jobs").map((l) => l.id)).toEqual(ids.slice(0, 1));
    expect(purges).toBe(3);
  });

  test("with a group selected, only its letters are replayed", async () => {
    const { queues, board } = await withLetters(10);
    const letters = new Letters(board, { topic: "jobs", group: "a", code: "" });
    await letters.load();
    expect(letters.list.value.map((l) => l.group)).toEqual(["a", "a", "a", "a", "a"]);
    await letters.replay(null);
    expect(queues.letters("jobs").map((l) => l.group)).toEqual(["b", "b", "b", "b", "b"]);
    await letters.purge(null, "jobs");
    expect(queues.letters("jobs")).toHaveLength(5);
  });

  test("with a code, only letters with it are listed, and they can be replayed to another topic", async () => {
    const { queues, board } = await withLetters(3);
    queues.bury("jobs", 2, () => "a", "POISON");
    const letters = new Letters(board, { topic: "jobs", group: "", code: "POISON" });
    await letters.load();
    expect(letters.list.value.map((l) => l.code)).toEqual(["POISON", "POISON"]);
    let to = "";
    const { replay } = queues.client;
    queues.client.replay = (topic, which, toTopic, signal) => {
      to = toTopic;
      return replay(topic, which, toTopic, signal);
    };
    await letters.replay(
      letters.list.value.map((l) => l.id),
      "elsewhere",
    );
    expect(to).toBe("elsewhere");
    expect(letters.note.value).toBe("Replayed 2 dead letters.");
    expect(queues.letters("jobs")).toHaveLength(3);
  });

  test("a purge sends the typed confirmation, and its refusal is shown", async () => {
    const { queues, letters } = await withLetters(3);
    await letters.purge(null, "job");
    expect(letters.error.value).toContain("confirm");
    expect(letters.note.value).toBe("");
    expect(queues.letters("jobs")).toHaveLength(3);
    await letters.purge(null, "jobs");
    expect(letters.note.value).toBe("Purged 3 dead letters.");
    expect(letters.error.value).toBe("");
    expect(queues.letters("jobs")).toEqual([]);
  });

  test("a replay that fails in the middle reports how many were replayed", async () => {
    const { queues, letters } = await withLetters(2_500);
    let calls = 0;
    queues.fail = (call) => (call === "replay" && ++calls > 1 ? new Error("gone away") : null);
    await letters.replay(null);
    expect(letters.note.value).toBe("Replayed 1000 dead letters.");
    expect(letters.error.value).toBe("Not all replayed: gone away");
  });

  test("as many new letters as were replayed are loaded, although the count is the same", async () => {
    const { queues, clock, board, letters } = await withLetters(2);
    letters.counted(2);
    await letters.replay(null);
    expect(letters.list.value).toHaveLength(0);
    letters.counted(2); // from before the replay
    await clock.pass(0);
    expect(letters.list.value).toHaveLength(0);
    queues.bury("jobs", 2, () => "a");
    letters.counted(2);
    await clock.pass(0);
    expect(letters.list.value).toHaveLength(2);
    board.close();
  });

  test("new letters load automatically, unless the user has selected or opened some", async () => {
    const { queues, clock, board, letters } = await withLetters(2);
    letters.counted(2);
    queues.bury("jobs", 1, () => "a");
    letters.counted(3);
    await clock.pass(0);
    expect(letters.list.value).toHaveLength(3);
    letters.unfold("0-3-0", true);
    queues.bury("jobs", 1, () => "a");
    letters.counted(4);
    await clock.pass(0);
    expect(letters.list.value).toHaveLength(3);
    expect(letters.stale.value).toBe(true);
    await letters.load();
    expect(letters.list.value).toHaveLength(4);
    expect([letters.stale.value, letters.open.value.has("0-3-0")]).toEqual([false, true]);
    board.close();
  });
});
